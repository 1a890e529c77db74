#!/usr/bin/env bash
# Builds and installs the extension into the local Maven repository, and runs the examples and tests against it, as a user's
# project would.
#
#   REDLATCH_BINARY=target/release/redlatch packages/java/check.sh [ARGUMENTS OF MAVEN]
set -euo pipefail
REDLATCH_BINARY="$(realpath "${REDLATCH_BINARY:?names the program}")"
export REDLATCH_BINARY
cd "$(dirname "$0")"
work="${CARGO_TARGET_DIR:-../../target}/packages/java"
rm -rf "$work"
mkdir -p "$work"
work="$(realpath "$work")"

mvn --batch-mode --quiet -Dbuild.folder="$work/build" install
cp -r examples "$work/examples"
cd "$work/examples"
mvn --batch-mode --no-transfer-progress "$@" test
