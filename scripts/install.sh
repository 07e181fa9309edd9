#!/usr/bin/env bash
# Installs what was built: the command, the library that it loads into programs, manual pages, and completions.
#
#   scripts/install.sh target/release PREFIX
set -euo pipefail
[ $# = 2 ] || { echo "usage: scripts/install.sh BUILT PREFIX" >&2 && exit 64; }
built=$1 prefix=$2
umask 022

install -D -m 755 "$built/forebay" "$prefix/bin/forebay"
# Where the command looks for it.
install -D -m 755 "$built/libforebay_preload.so" "$prefix/lib/forebay/libforebay_preload.so"
mkdir -p "$prefix/share/man/man1"
"$built/forebay" man "$prefix/share/man/man1"

completion() { # SHELL FILE
  mkdir -p "$(dirname "$prefix/share/$2")"
  "$built/forebay" completions "$1" >"$prefix/share/$2"
}
completion bash bash-completion/completions/forebay
completion zsh zsh/site-functions/_forebay
completion fish fish/vendor_completions.d/forebay.fish
echo "installed in $prefix; \`forebay doctor\` says what works on this machine"
