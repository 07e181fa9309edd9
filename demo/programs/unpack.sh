# A source tree of some thousand small files is unpacked.
tar -xf "$INPUT/sources.tar"
