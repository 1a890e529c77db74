#!/usr/bin/env bash
# Builds and installs the extension into the local Maven repository, and runs the examples and tests against it, as a user's
# project would.
#
#   REDLATCH_BINARY=target/release/redlatch packages/java/check.sh [ARGUMENTS OF MAVEN]
set -euo pipefail
REDLATCH_BINARY="$(realpath "${REDLATCH_BINARY:?names the program}")"
export REDLATCH_BINARY
work="$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../../target}")/packages/java"
cd "$(dirname "$0")"
rm -rf "$work"
mkdir -p "$work"

../interface.py java
# README.md names the Redisson that the examples use.
redisson() { grep -A 1 '<artifactId>redisson</artifactId>' "$1" | sed 's/^ *//'; }
[ "$(redisson README.md)" = "$(redisson examples/pom.xml)" ]
mvn --batch-mode --quiet -Dbuild.folder="$work/build" install
cp -r examples "$work/examples"
cd "$work/examples"
mvn --batch-mode --no-transfer-progress "$@" test
