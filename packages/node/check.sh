#!/usr/bin/env bash
# Packs the packages around the program REDLATCH_BINARY, installs them in a fresh folder as a user would, and runs the tests there.
#
#   REDLATCH_BINARY=target/release/redlatch packages/node/check.sh [ARGUMENTS OF VITEST]
#
# With REDLATCH_STATIC_BINARY, the static program, the package for musl is packed as well, and npm must choose between the two.
set -euo pipefail
program="$(realpath "${REDLATCH_BINARY:?names the program}")"
static="${REDLATCH_STATIC_BINARY:+$(realpath "$REDLATCH_STATIC_BINARY")}"
unset REDLATCH_BINARY REDLATCH_STATIC_BINARY
work="$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../../target}")/packages/node"
cd "$(dirname "$0")"
packages="$PWD"
rm -rf "$work"
mkdir -p "$work/project"

../interface.py node
node build.mjs "$program" "$work"
cp -r test/. "$work/project"
cp -r examples "$work/project/examples"
cd "$work/project"
npm install --no-package-lock --no-audit --no-fund --loglevel error
npm install --no-package-lock --no-audit --no-fund --loglevel error --save-dev "$work"/*.tgz

if [ -n "$static" ]; then
    node "$packages/build.mjs" "$static" "$work/musl"
    node "$packages/libc.mjs" "$work"/redlatch-linux-*.tgz "$work"/musl/redlatch-linux-*-musl-*.tgz "$work/libc"
fi

npx tsc
npx vitest run "$@"
npx jest --config jest/jest.config.json
