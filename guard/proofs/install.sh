#!/usr/bin/env bash
# Installs what the proofs need (z3 and a parser of Rust) into .toolchain/proofs, from the Python package index.

set -euo pipefail

usage() {
    cat <<'USAGE'
usage: guard/proofs/install.sh [--help]

Installs z3 and tree-sitter into .toolchain/proofs unless they are there already, and prints that folder on stdout.
Messages go to stderr. PYTHON names the Python to use (python3 unless set), 3.11 to 3.14.
USAGE
}

case ${1:-} in
    '') ;;
    -h | --help)
        usage
        exit
        ;;
    *)
        usage >&2
        exit 2
        ;;
esac

repository=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
home=$repository/.toolchain
root=$home/proofs
stamp=$root/bulkhead-proofs
python=${PYTHON:-python3}

# For x86_64 and aarch64; tree-sitter has a wheel for each version of Python.
requirements() {
    cat <<'PINS'
z3-solver==5.4.1.0 --hash=sha256:e680ce083683abca5d07c3e55c2f620ff9a29cb91c548eeeea27ae29e8060522 --hash=sha256:f056cb9714bb7c56ad7d25d86786b5a42c8a3c80e68b11f39af5f469b5366395
tree-sitter-rust==0.24.2 --hash=sha256:e033c5a93b57c88e0a835880de39fc802909ff69f57aaff6000211c196ea5190 --hash=sha256:9d76d1208c3638b871236090759dfc13d478921320653a6c9da5336e7c58f65a
tree-sitter==0.26.1 --hash=sha256:1529457e099ee5963b9738d42ed8133316d936157e912aa4a985f4fdaf018ada --hash=sha256:0a7a9ee719645d656fe252afbb437b4bb5e9a535e5287fc04c0831876b2de07a --hash=sha256:7b14ac81a2afdcf75610f714f1d2eeaac40da93965c104cabb5c4c2b536a488a --hash=sha256:8ecef3db771e6f50a7010310056a54bca11279e0f10597fff78c215a879de965 --hash=sha256:00e55f823de46b2bbcab9ca58a4c2a7ccc2b1dc28ed3fad7355fb32726008e21 --hash=sha256:92aaec1a5d4318b7e563075365336d89dcfb613f716a4491bfd9a012a133aa74 --hash=sha256:0c1b48e17b26cf555060c1285b35f49eeb345222e62c2a35d70c393a7c61c65b --hash=sha256:02d73ec124fa74e64558f5fdb3ae58d8af19d5e8b4a70197b45ebf22c83e822f
PINS
}

say() { printf 'proofs: %s\n' "$*" >&2; }

# What was installed for one version of Python does not load in another.
expected() {
    requirements
    "$python" -c 'import sys; print(sys.version_info[:2])'
}

# The stamp is written last, so an interrupted run leaves none.
installed() { [[ -f $stamp ]] && [[ $(<"$stamp") == "$(expected)" ]]; }

mkdir -p "$home"
if command -v flock >/dev/null 2>&1; then
    exec 9>"$home/proofs.lock"
    flock 9
fi
if ! installed; then
    staging=$(mktemp -d "$home/proofs.XXXXXX")
    trap 'rm -rf -- "$staging"' EXIT
    pip=$python
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv "$staging/venv" >&2 || {
            say "$python has neither pip nor venv: install python3-pip, or name another Python in PYTHON"
            exit 1
        }
        pip=$staging/venv/bin/python
    fi
    requirements >"$staging/requirements.txt"
    say 'fetching z3 and tree-sitter (about 40 MB)'
    # A site's own defaults (user installs, other targets) must not redirect this one.
    PIP_USER=0 PIP_ROOT_USER_ACTION=ignore "$pip" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
        --only-binary :all: --require-hashes --requirement "$staging/requirements.txt" --target "$staging/site" >&2 || {
        say 'pip could not install them; its own words are above'
        exit 1
    }
    expected >"$staging/site/${stamp##*/}"
    rm -rf -- "$root"
    mv -- "$staging/site" "$root"
    say "installed: $root"
fi
printf '%s\n' "$root"
