# shellcheck shell=bash
# Sourced: the original sources of a package, from where this machine's packages come from.

fetch_source() { # PACKAGE DIRECTORY: leaves its .orig.tar there
  local scratch options
  scratch=$(mktemp -d) || return
  mkdir -p "$scratch/parts" "$scratch/lists/partial"
  sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' /etc/apt/sources.list.d/debian.sources >"$scratch/parts/source.sources"
  options=(-q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$scratch/parts" -o Dir::State::Lists="$scratch/lists")
  apt-get "${options[@]}" update && (cd "$2" && apt-get "${options[@]}" source --download-only "$1")
  local status=$?
  rm -rf "$scratch"
  return $status
}
