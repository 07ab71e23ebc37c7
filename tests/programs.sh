#!/usr/bin/env bash
# Builds the CUDA programs under tests/programs with nvcc's defaults into tests/programs/bin.

set -euo pipefail

usage() {
    cat <<'USAGE'
usage: tests/programs.sh [--ptx] [--carry DIR] [--clean] [--help] [NAME...]

  (nothing)    build every program whose source, flags or compiler changed since its last build
  NAME...      only these (vecadd, refused/recursion, ...)
  --ptx        also write each program's PTX to tests/programs/bin/ptx
  --carry DIR  also copy the binaries to DIR, for a machine without a compiler
  --clean      remove tests/programs/bin first

A source says what it needs beyond nvcc's defaults in a line `// nvcc: FLAGS`, where {sources} is the folder of the programs.
JOBS is the number of compilers at a time (the number of processors unless set).
USAGE
}

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
sources=$here/programs
bin=$sources/bin
jobs=${JOBS:-$(nproc)}
carry_max_kib=32768

fail() {
    printf 'programs: error: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf 'programs:   %s\n' "$line" >&2; done
    exit 1
}

# One program a line: name, source, flags.
list() {
    local source name flags
    for source in "$sources"/*.cu "$sources"/refused/*.cu "$sources"/gates/*.cu; do
        name=${source#"$sources"/}
        name=${name%.cu}
        flags=$(sed -n 's|^// nvcc: *||p' "$source")
        flags=${flags//'{sources}'/$sources}
        printf '%s\t%s\t%s\n' "$name" "$source" "$flags"
    done
    printf '%s\t%s\t%s\n' vecadd_shared "$sources/vecadd.cu" '-cudart shared'
}

# Whether a file was made from what has this digest.
made_from() { [[ -f $1 && -f $2 && $(<"$2") == "$3" ]]; }

# Builds one program, and keeps the digest of all it was made from beside it.
build() {
    local name=$1 source=$2 digest flags
    read -r -a flags <<<"$3"
    local output=$bin/$name stamp=$bin/.built/$name log=$bin/.built/$name.log ptx=$bin/ptx/$name.ptx
    digest=$({
        printf '%s\n' "$3" "$COMPILER"
        cat -- "$ROOT/bulkhead-toolchain" "$source" "$sources"/*.h "${BASH_SOURCE[0]}"
    } | sha256sum)
    if ! made_from "$output" "$stamp" "$digest"; then
        mkdir -p -- "${output%/*}" "${stamp%/*}"
        rm -f -- "$stamp"
        compile "$name" "$log" "$output.new" "${flags[@]}" "$source" || return 1
        strip "$output.new"
        mv -- "$output.new" "$output"
        printf '%s\n' "$digest" >"$stamp"
        printf 'programs: built %s\n' "$name" >&2
    fi
    if [[ $WITH_PTX == yes ]] && ! made_from "$ptx" "$stamp.ptx" "$digest"; then
        mkdir -p -- "${ptx%/*}"
        rm -f -- "$stamp.ptx"
        compile "$name" "$log" "$ptx" "${flags[@]}" -ptx "$source" || return 1
        printf '%s\n' "$digest" >"$stamp.ptx"
    fi
}

# Runs nvcc; its words are kept in the log and shown where there are any.
compile() {
    local name=$1 log=$2 output=$3 status=0
    shift 3
    "$ROOT/bin/nvcc" -o "$output" "$@" >"$log" 2>&1 || status=1
    if ((status != 0)); then
        rm -f -- "$output"
        printf 'programs: %s FAILED\n' "$name" >&2
    fi
    sed 's/^/    /' "$log" >&2
    return "$status"
}

if [[ ${1:-} == --build-one ]]; then
    build "$2" "$3" "$4"
    exit
fi

carry=
WITH_PTX=no
names=()
while (($# > 0)); do
    case $1 in
        --carry)
            (($# > 1)) || fail '--carry needs a folder'
            carry=$2
            shift
            ;;
        --ptx) WITH_PTX=yes ;;
        --clean) rm -rf -- "$bin" ;;
        -h | --help)
            usage
            exit
            ;;
        -*)
            usage >&2
            exit 2
            ;;
        *) names+=("$1") ;;
    esac
    shift
done

ROOT=$("$here/toolchain.sh" --print)
command -v g++ >/dev/null 2>&1 ||
    fail 'nvcc needs a C++ compiler and g++ is not there' \
        'Debian, Ubuntu: apt-get install g++     Fedora: dnf install gcc-c++ libstdc++-static'
COMPILER=$(g++ --version | head -n 1)
export ROOT COMPILER WITH_PTX

wanted() {
    local name line
    if ((${#names[@]} == 0)); then
        list
        return
    fi
    for name in "${names[@]}"; do
        line=$(list | awk -F '\t' -v name="$name" '$1 == name') && [[ -n $line ]] || fail "there is no program $name"
        printf '%s\n' "$line"
    done
}

mkdir -p -- "$bin/.built"
if command -v flock >/dev/null 2>&1; then
    exec 9>"$bin/.built/lock"
    flock 9
fi
work=$(wanted)
# xargs takes the three fields of a program as three arguments, empty flags included.
if ! printf '%s\n' "$work" | tr '\t\n' '\0\0' | xargs -0 -n 3 -P "$jobs" "$BASH" "${BASH_SOURCE[0]}" --build-one; then
    fail 'not every program was built; see above'
fi

if [[ -n $carry ]]; then
    mkdir -p -- "$carry"
    while IFS=$'\t' read -r name _; do
        mkdir -p -- "$(dirname -- "$carry/$name")"
        cp -- "$bin/$name" "$carry/$name"
    done <<<"$work"
    # vecadd_shared finds the runtime only where its folder is on the library path.
    cp -L -- "$ROOT/lib64/libcudart.so.13" "$carry/libcudart.so.13"
    size=$(du -sk -- "$carry" | cut -f 1)
    ((size <= carry_max_kib)) || fail "$carry holds $size KiB, more than the $carry_max_kib that travel"
    printf 'programs: %s KiB in %s\n' "$size" "$carry" >&2
fi
