#!/usr/bin/env bash
# Makes the wheel, installs it as a user would, and runs the tests of the client against it, on the newest redis-py and the oldest.
#
#   check.sh             all tests but those below, and the scenarios; what is missing is skipped
#   check.sh nodes       the scenarios with nodes on etcd, on the newest redis-py alone
#   check.sh fence       those with databases, the same
#
# REDLATCH_BINARY names the program; without it the debug build is made.
set -euo pipefail
program="${REDLATCH_BINARY:+$(realpath "$REDLATCH_BINARY")}"
cd "$(dirname "$0")"

readonly OLDEST_REDIS_PY=redis==6.4.0
CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-../../../target}")"
readonly SHOP="$CARGO_TARGET_DIR/ci/python-client"
readonly PYTHON="$SHOP/venv/bin/python"
export CARGO_TARGET_DIR

if [ -z "$program" ]; then
    cargo build --locked --bin redlatch
    program="$CARGO_TARGET_DIR/debug/redlatch"
fi
[ -x "$PYTHON" ] || python3 -m venv "$SHOP/venv"
"$PYTHON" -m pip install --quiet --requirement tests/requirements.txt

rm -rf "$SHOP/wheels"
../../release.py --clients python --out "$SHOP/wheels"
"$PYTHON" -m pip install --quiet --no-deps --force-reinstall "$SHOP"/wheels/redlatch_client-*.whl
"$PYTHON" -m mypy --cache-dir "$SHOP/mypy" redlatch_client

# The module is that of the wheel: its sources are in no path. The servers are started by the test package.
PYTHONPATH="$(realpath ../../python/python)"
export REDLATCH_BINARY="$program" PYTHONPATH
REDLATCH_VALKEY_SERVER="${REDLATCH_VALKEY_SERVER:-$(find "$SHOP/venv" -type f -name valkey-server | head -n 1)}"
export REDLATCH_VALKEY_SERVER
readonly TESTS="$PWD"
readonly NEWEST="python=$PYTHON $TESTS/tests/adapter.py"
# tests OPTION ...
tests() {
    (cd "$SHOP" && "$PYTHON" -m pytest --rootdir "$TESTS" -c "$TESTS/pyproject.toml" -o cache_dir="$SHOP/pytest" -n 2 "$@" "$TESTS/tests")
}
case "${1:-}" in
    "")
        "$PYTHON" -m pip install --quiet --upgrade --no-deps --target "$SHOP/oldest" "$OLDEST_REDIS_PY"
        tests
        PYTHONPATH="$SHOP/oldest:$PYTHONPATH" tests
        ../conformance/run.py --adapter "$NEWEST" --adapter "python=env PYTHONPATH=$SHOP/oldest $PYTHON $TESTS/tests/adapter.py"
        ;;
    nodes) ../conformance/run.py --nodes --adapter "$NEWEST" ;;
    *) tests -k "$1" ;;
esac
