#!/usr/bin/env bash
# Passes every check and test, and installs what they need: the command of the README, and what CI runs.

set -euo pipefail

usage() {
    cat <<'USAGE'
usage: tests/test.sh [--fast | --keep] [--help]

  --fast   formatting, and the tests that take at most 5 s each: below 3 minutes where all is built. No lints, documentation,
           proofs, Thrust or model checking: run it without before you send anything
  --keep   everything, and writes how long it took: each step to tests/steps.txt, each program of tests to tests/times.json

Needs Rust (with rustfmt and clippy), a C++ compiler and Python 3.11. The CUDA compiler, and z3 for the proofs, are
installed into .toolchain.
Ends with 0 when everything passed, otherwise with 1 at the first failure. What cannot run here (tests that need an
NVIDIA GPU, or the capnp compiler) is reported as skipped.
USAGE
}

tier=all
case ${1:-} in
    '') ;;
    --fast) tier=fast ;;
    --keep) tier=keep ;;
    -h | --help)
        usage
        exit
        ;;
    *)
        usage >&2
        exit 2
        ;;
esac

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
# The tests would build the binaries again to be sure of them.
export BULKHEAD_TESTS_BUILT=1
# Where nothing was built before, everything is, once: what would make later builds faster makes this one slower.
if [[ -n ${CI:-} || ! -d $target ]]; then
    export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0} CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0}
fi
started=$SECONDS
times=()
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

say() { printf '\ntest.sh: %s\n' "$*"; }

need() {
    "${@:2}" >/dev/null 2>&1 || {
        say "${*:2} does not work: $1"
        exit 1
    }
}

# How long each step took, and how many tests ran.
summary() {
    ((${#times[@]} == 0)) || printf '%s\n' "${times[@]}"
    touch "$work/tests" "$work/loom"
    # test result: ok. 12 passed; 0 failed; 1 ignored; ...
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
         END { if (passed + failed) printf "%d tests passed, %d failed, %d ignored\n", passed, failed, ignored }' \
        "$work/tests" "$work/loom"
    # A test that failed has a line of its own, far above.
    grep -hE '^(skipped: |test .* FAILED$)' "$work/tests" || true
}

# Runs one step; the first that fails ends it all.
step() {
    local name=$1 begun=$SECONDS
    shift
    say "$name"
    if ! "$@"; then
        say "FAILED: $name, after $((SECONDS - begun)) s"
        summary
        exit 1
    fi
    times+=("$(printf '%5d s  %s' $((SECONDS - begun)) "$name")")
}

# All of them, so that one run shows whatever fails. The output is kept, so that its tests can be counted.
tests() {
    local how=()
    [[ $tier == all ]] || how=("--$tier")
    "${PYTHON:-python3}" tests/run_tests.py ${how[@]+"${how[@]}"} 2>&1 | tee "$work/tests"
}

loom() { RUSTFLAGS='--cfg loom' cargo test --release -p bulkhead-ring --test loom --target-dir "$target/loom" 2>&1 | tee "$work/loom"; }

# All of them for one architecture, those that tune by architecture for two more: nvcc takes a quarter of a minute for each.
thrust_and_cub() {
    local run=("${PYTHON:-python3}" tests/outside/run.py own --backend software --bulkhead "$target/debug/bulkhead" --strict)
    local tuned='own/(thrust_sort|thrust_scan|cub_select|thrust_unique)$'
    "${run[@]}" --architecture 80 &&
        "${run[@]}" --architecture 75 --only "$tuned" &&
        "${run[@]}" --architecture 90 --only "$tuned"
}

# Whether every script can be read at all: what uses them runs late.
scripts() {
    local file
    while IFS= read -r -d '' file; do
        case $file in
            *.py) "${PYTHON:-python3}" -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" ;;
            *.sh) bash -n -- "$file" ;;
        esac || return 1
    done < <(git ls-files -z -- '*.py' '*.sh')
    "${PYTHON:-python3}" -B -m doctest tests/outside/times.py tests/outside/run.py
}

documentation() { RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --workspace; }

need 'install Rust, https://rustup.rs' cargo --version
need 'rustup component add rustfmt' cargo fmt --version
need 'rustup component add clippy' cargo clippy --version
need 'install a C++ compiler (Debian, Ubuntu: apt-get install g++)' g++ --version
need 'install Python 3.11 or newer, or name it in PYTHON' "${PYTHON:-python3}" -c 'import tomllib'

step 'scripts' scripts
step 'format' cargo fmt --all --check
if [[ $tier != fast ]]; then
    step 'lints' cargo clippy --quiet --workspace --all-targets -- -D warnings
    step 'documentation' documentation
    step 'the proofs of the value rules' "${PYTHON:-python3}" guard/proofs/prove.py
fi
step 'the CUDA compiler' tests/toolchain.sh
step 'the CUDA programs' tests/programs.sh
step 'the binaries' cargo build --quiet --workspace --examples --bins --lib
if [[ $tier != fast ]]; then
    step 'Thrust and CUB' thrust_and_cub
    step 'the ring under loom' loom
fi
step 'the tests' tests

say "everything passed in $((SECONDS - started)) s"
summary
if [[ $tier == keep ]]; then
    printf '%s\n' "${times[@]}" "$(printf '%5d s  all' $((SECONDS - started)))" > tests/steps.txt
fi
