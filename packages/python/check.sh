#!/usr/bin/env bash
# Makes the wheel, installs it as a user would, and runs the tests of the package against it.
#
# Its program is built by the profile `wheel`: a small one. Where REDLATCH_BINARY names a program, the wheel is made around that.
set -euo pipefail
program="${REDLATCH_BINARY:+$(realpath "$REDLATCH_BINARY")}"
cd "$(dirname "$0")"

readonly WHEEL_BYTES_MAX="${WHEEL_BYTES_MAX:-4000000}"
CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-../../target}")"
readonly SHOP="$CARGO_TARGET_DIR/ci/python-package"
readonly PYTHON="$SHOP/venv/bin/python"
export CARGO_TARGET_DIR

../interface.py python
[ -x "$PYTHON" ] || python3 -m venv "$SHOP/venv"
"$PYTHON" -m pip install --quiet --requirement tests/requirements.txt

rm -rf "$SHOP/wheels"
if [ -z "$program" ]; then
    cargo build --locked --profile wheel --bin redlatch
    program="$CARGO_TARGET_DIR/wheel/redlatch"
fi
../release.py --binary "$program" --features default --wheel --out "$SHOP/wheels"
wheel=("$SHOP"/wheels/redlatch-*-py3-none-*.whl)
size=$(wc -c <"${wheel[0]}")
echo "${wheel[0]##*/}: $size bytes"
[ "$size" -lt "$WHEEL_BYTES_MAX" ] || { echo "the wheel must be smaller than $WHEEL_BYTES_MAX bytes"; exit 1; }

"$PYTHON" -m pip install --quiet --no-deps --force-reinstall "${wheel[0]}"
"$PYTHON" -m mypy --cache-dir "$SHOP/mypy" python/redlatch
# The program and the module are those of the wheel: the sources of the module are in no path.
unset REDLATCH_BINARY
"$PYTHON" -m pytest -o cache_dir="$SHOP/pytest" -n 2
