#!/usr/bin/env bash
# Installs the CUDA compiler the tests use into .toolchain/cuda, from the Python package index.
# Versions and wheels are pinned: a newer nvvm would emit PTX that the H200's driver (CUDA 13.0) cannot read.

set -euo pipefail

usage() {
    cat <<'USAGE'
usage: tests/toolchain.sh [--print | --check | --force | --help]

  (nothing)  install the CUDA compiler unless it is there already
  --print    the same, then print the path of the CUDA root (the folder of bin/nvcc) on stdout
  --check    install nothing; exit with 1 unless the toolchain is there
  --force    install again from scratch

Messages go to stderr. PYTHON names the Python to use (python3 unless set).
USAGE
}

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
home=$repository/.toolchain
root=$home/cuda
stamp=$root/bulkhead-toolchain
python=${PYTHON:-python3}

# Both hashes of a line are of the same version: x86_64, then aarch64.
requirements() {
    cat <<'PINS'
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03 --hash=sha256:c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0 --hash=sha256:c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4 --hash=sha256:ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 --hash=sha256:ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649 --hash=sha256:6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c
PINS
}

say() { printf 'toolchain: %s\n' "$*" >&2; }

fail() {
    printf 'toolchain: error: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf 'toolchain:   %s\n' "$line" >&2; done
    exit 1
}

# The stamp is written last, so an interrupted run leaves none; the tools are looked for all the same.
installed() {
    local file
    [[ -f $stamp ]] && [[ $(<"$stamp") == "$(requirements)" ]] || return 1
    for file in bin/nvcc bin/ptxas bin/fatbinary nvvm/bin/cicc include/cuda_runtime.h lib64/libcudart_static.a; do
        [[ -e $root/$file ]] || return 1
    done
}

# Prints the command that runs pip: the interpreter's own, or one from a throw-away virtual environment.
find_pip() {
    local place=$1
    if "$python" -m pip --version >/dev/null 2>&1; then
        printf '%s\n' "$python"
    elif "$python" -m venv "$place/venv" >/dev/null 2>&1 && [[ -x $place/venv/bin/pip ]]; then
        printf '%s\n' "$place/venv/bin/python"
    else
        fail "$python has neither pip nor venv" \
            "Debian, Ubuntu: apt-get install python3-pip     Fedora: dnf install python3-pip" \
            "or name another Python: PYTHON=/path/to/python3 tests/toolchain.sh"
    fi
}

# What the wheels leave out: lib64, and the names the linker looks for.
complete() {
    local cuda=$1 library name
    [[ -e $cuda/lib64 ]] || ln -s lib "$cuda/lib64"
    for library in "$cuda"/lib/*.so.*; do
        [[ -e $library ]] || continue
        name=${library##*/}
        [[ -e $cuda/lib/${name%%.so.*}.so ]] || ln -s "$name" "$cuda/lib/${name%%.so.*}.so"
    done
    # A link made by an installer that keeps no modes must not cost us the compiler.
    chmod -f u+x "$cuda"/bin/* "$cuda"/nvvm/bin/* || true
}

install_toolchain() {
    local staging pip_python started=$SECONDS
    case "$(uname -s) $(uname -m)" in
        'Linux x86_64' | 'Linux aarch64') ;;
        *) fail "no CUDA compiler for $(uname -s) on $(uname -m)" "Linux on x86_64 or aarch64 is needed" ;;
    esac
    command -v "$python" >/dev/null 2>&1 ||
        fail "$python is not there" "install Python 3, or name one: PYTHON=/path/to/python3 tests/toolchain.sh"
    mkdir -p "$home"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$home/lock"
        flock -n 9 || { say 'another run is installing; waiting for it'; flock 9; }
        if [[ ${1:-} != force ]] && installed; then return; fi
    fi

    staging=$(mktemp -d "$home/staging.XXXXXX")
    # shellcheck disable=SC2064 # the name is wanted as it is now
    trap "rm -rf -- '$staging'" EXIT
    trap 'exit 130' INT TERM
    pip_python=$(find_pip "$staging")
    requirements >"$staging/requirements.txt"
    say 'fetching nvcc 13.0.88 and its headers and libraries (about 90 MB, 290 MB unpacked)'
    # A site's own defaults (user installs, other targets) must not redirect this one.
    PIP_USER=0 PIP_ROOT_USER_ACTION=ignore "$pip_python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
        --no-compile --require-hashes --requirement "$staging/requirements.txt" --target "$staging/site" >&2 ||
        fail 'pip could not install the compiler; its own words are above' \
            'no network or no index: set PIP_INDEX_URL or PIP_PROXY and run this again' \
            'a hash that does not match: the index serves other files than the pinned ones' \
            'an old pip: python3 -m pip install --upgrade pip'
    [[ -d $staging/site/nvidia/cu13 ]] || fail 'the wheels are not laid out as expected (nvidia/cu13 is missing)'
    complete "$staging/site/nvidia/cu13"
    "$staging/site/nvidia/cu13/bin/nvcc" --version >/dev/null 2>&1 ||
        fail 'the installed nvcc does not start' "$("$staging/site/nvidia/cu13/bin/nvcc" --version 2>&1 | head -n 3)"
    requirements >"$staging/site/nvidia/cu13/${stamp##*/}"
    rm -rf -- "$root"
    mv -- "$staging/site/nvidia/cu13" "$root"
    rm -rf -- "$staging"
    trap - EXIT INT TERM
    # Leftovers of runs that were killed; under the lock nobody else's.
    if command -v flock >/dev/null 2>&1; then rm -rf -- "$home"/staging.*; fi
    say "installed in $((SECONDS - started)) s: $root"
}

case ${1:-} in
    '') if installed; then say "already there: $root"; else install_toolchain; fi ;;
    --print)
        if ! installed; then install_toolchain; fi
        printf '%s\n' "$root"
        ;;
    --check) installed || fail 'the CUDA compiler is not installed' 'run tests/toolchain.sh' ;;
    --force) install_toolchain force ;;
    -h | --help) usage ;;
    *)
        usage >&2
        exit 2
        ;;
esac
