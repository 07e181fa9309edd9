# shellcheck shell=bash
# What package managers and builds cost in a new directory of a store of 2 ms a request, which Forebay delegates, beside the burst
# buffer's own file system. Time is what the program sees; all is brought to the store afterwards, and compared by number of files.
#
# What they install is fetched once, by the tools themselves as they are configured, and kept in target/bench/inputs.

# shellcheck source=benches/sources.sh
. benches/sources.sh
BUILDS=${BUILDS:-"pip npm cargo make"}
BUILDS_WHEELS=${BUILDS_WHEELS:-"django requests pytest"}
BUILDS_MODULES=${BUILDS_MODULES:-"express eslint"}
builds_inputs=$out/inputs builds_store=$scratch/store builds_lower=$slow/builds

builds_fetch_pip() {
  python3 -m pip download --quiet --dest "$1" $BUILDS_WHEELS
}
builds_fetch_npm() {
  mkdir -p "$1/away" && (cd "$1/away" && npm install --silent --no-audit --no-fund --cache "$1/cache" $BUILDS_MODULES) && rm -r "$1/away"
}
builds_fetch_cargo() {
  mkdir -p "$1/crate/src" "$1/crate/.cargo"
  printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nserde = { version = "1", features = ["derive"] }\nserde_json = "1"\nregex-automata = "0.4"\n[workspace]\n' >"$1/crate/Cargo.toml"
  printf 'fn main() { println!("{}", serde_json::json!({ "built": regex_automata::dfa::regex::Regex::new("a+").is_ok() })); }\n' >"$1/crate/src/main.rs"
  (cd "$1/crate" && { cargo vendor --quiet --offline 2>/dev/null || cargo vendor --quiet; } >.cargo/config.toml)
}
# Lua's sources.
builds_fetch_make() { fetch_source lua5.4 "$1" && mv "$1"/lua5.4_*.orig.tar.gz "$1/sources.tar.gz"; }

builds_script() { # NAME: runs in a new directory; $INPUTS has what was fetched
  case $1 in
    pip) echo "python3 -m pip install --quiet --no-index --find-links \$INPUTS --prefix \$PWD/site --ignore-installed --no-warn-script-location $BUILDS_WHEELS" ;;
    npm) echo "npm install --silent --no-audit --no-fund --offline --cache \$INPUTS/cache $BUILDS_MODULES" ;;
    cargo) echo "cp -r \$INPUTS/crate . && cd crate && CARGO_TARGET_DIR=\$PWD/target cargo build --quiet --offline && target/debug/small" ;;
    make) echo 'tar xf $INPUTS/sources.tar.gz --strip-components=1 && make -s -j2 posix' ;;
  esac
}

builds_run() { # SIDE NAME -> seconds
  local inputs=$builds_inputs/$2 place
  rm -rf "${builds_lower:?}" "${buffer:?}" "${bare:?}" && mkdir -p "$builds_lower" "$builds_store" "$buffer" "$bare"
  printf 'mkdir fresh && cd fresh || exit\nbegan=$(date +%%s.%%N)\n( %s ) || exit\necho "$began $(date +%%s.%%N)" >%s\nfind . | wc -l >%s\n' \
    "$(builds_script "$2")" "$scratch/times" "$scratch/count" >"$scratch/build"
  if [ "$1" = bare ]; then
    (cd "$bare" && INPUTS=$inputs sh "$scratch/build") >"$out/builds.log" 2>&1 || { cat "$out/builds.log" >&2 && exit 1; }
    place=$bare
  else
    "$slowfs" "$builds_lower" "$builds_store" --latency 2ms || exit 1
    (cd "$builds_store" && INPUTS=$inputs "$forebay" run --quiet --burst-buffer "$buffer" --dir "$builds_store" --policy delegate=new -- \
      sh "$scratch/build") >"$out/builds.log" 2>&1 || { cat "$out/builds.log" >&2 && exit 1; }
    umount "$builds_store"
    place=$builds_lower
  fi
  local there=$(cd "$place/fresh" && find . | wc -l)
  [ "$there" = "$(cat "$scratch/count")" ] || { echo "$1, $2: $there names of $(cat "$scratch/count")" >&2 && exit 1; }
  awk '{ printf "%.3f", $2 - $1 }' "$scratch/times"
}

builds_case() { # SIDE NAME
  local took
  took=$(builds_run "$1" "$2") || exit 1
  value "$2, $(cat "$scratch/count") names" s less "$1" "$took"
}

bench_builds() {
  local name
  # Temporary files of programs are in the same place on both sides.
  export TMPDIR=$fast/temporary PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
  mkdir -p "$TMPDIR"
  for name in $BUILDS; do
    if [ ! -e "$builds_inputs/$name/ready" ]; then
      mkdir -p "$builds_inputs/$name" && "builds_fetch_$name" "$builds_inputs/$name" >"$out/fetch.log" 2>&1 && touch "$builds_inputs/$name/ready" ||
        { echo "not measured: nothing to build for $name" >&2 && tail -n 5 "$out/fetch.log" >&2 && continue; }
    fi
    # What the programs themselves read is read once before.
    builds_run bare "$name" >/dev/null || exit 1
    both builds_case "$name"
  done
}
