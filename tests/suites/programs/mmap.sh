# Shared and private mappings, in one process and between two, beside read and write.
python3 - <<'PYTHON'
import mmap, os
size = 4 << 20
with open("mapped", "wb+") as file:
    file.truncate(size)
    shared = mmap.mmap(file.fileno(), size)
    for at in range(0, size, 65536):
        shared[at:at + 8] = at.to_bytes(8, "little")
    file.seek(65536)
    assert file.read(8) == (65536).to_bytes(8, "little"), "read does not see a store"
    os.pwrite(file.fileno(), b"written!", 131072)
    assert shared[131072:131080] == b"written!", "a mapping does not see a write"
    child = os.fork()
    if child == 0:
        other = mmap.mmap(os.open("mapped", os.O_RDWR), size)
        assert other[131072:131080] == b"written!"
        other[196608:196616] = b"by child"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    assert shared[196608:196616] == b"by child", "the parent does not see the child's store"
    private = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    private[0:4] = b"only"
    assert shared[0:4] != b"only"
    shared.flush()
# Stored after the descriptor was closed: the mapping alone keeps the file.
shared[262144:262152] = b"at last!"
shared.close()
with open("mapped", "rb") as file:
    file.seek(262144)
    print(file.read(8))
PYTHON
