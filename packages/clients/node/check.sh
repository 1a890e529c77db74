#!/usr/bin/env bash
# Packs the client, installs it in a fresh folder as a user would, checks its types, and runs its tests there.
#
#   check.sh          all but those with databases, and the scenarios but those with nodes on etcd
#   check.sh nodes    the scenarios with nodes on etcd
#   check.sh fence    those with databases
#   check.sh -- ...   with these arguments of Vitest
#
# REDLATCH_BINARY names the program; without it the debug build is made. REDLATCH_REDIS_SERVER, REDLATCH_VALKEY_SERVER and
# REDLATCH_ETCD name the programs of other servers; those that are not there are skipped, unless REDLATCH_REQUIRE_CLIENTS is
# set. REDLATCH_REQUIRE_DATABASES: PostgreSQL and MariaDB must be there.
set -euo pipefail
program="${REDLATCH_BINARY:+$(realpath "$REDLATCH_BINARY")}"
cd "$(dirname "$0")"

CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-../../../target}")"
export CARGO_TARGET_DIR
readonly SHOP="$CARGO_TARGET_DIR/ci/node-client"
readonly TEST_PACKAGE="$PWD/../../node"
readonly PROJECT="$SHOP/project"

if [ -z "$program" ]; then
    cargo build --locked --bin redlatch
    program="$CARGO_TARGET_DIR/debug/redlatch"
fi

# The package of a release; and the test package, without a program.
rm -rf "$SHOP/stage" "$SHOP/packages"
mkdir -p "$SHOP/stage" "$SHOP/packages" "$PROJECT"
../../release.py --clients node --out "$SHOP/packages"
cp -r "$TEST_PACKAGE"/{package.json,README.md,lib,{index,vitest,vitest-test}.{js,d.ts}} "$SHOP/stage"
(cd "$SHOP/stage" && npm pkg delete optionalDependencies)
(cd "$SHOP/packages" && npm pack --silent ../stage >/dev/null)

# The dependencies stay between runs; what is tested is new each time.
find "$PROJECT" -mindepth 1 -maxdepth 1 ! -name node_modules ! -name package-lock.json -exec rm -rf {} +
cp -r test/. "$PROJECT"
cp -r examples "$PROJECT/examples"
cd "$PROJECT"
npm install --no-audit --no-fund --loglevel error
npm install --no-audit --no-fund --loglevel error --no-save "$SHOP"/packages/*.tgz

REDLATCH_CLIENTS="$(realpath "$TEST_PACKAGE/../clients")"
export REDLATCH_BINARY="$program" REDLATCH_CLIENTS

readonly ADAPTER="node=node $PROJECT/adapter.js"
case "${1:-}" in
nodes) "$REDLATCH_CLIENTS/conformance/run.py" --nodes --adapter "$ADAPTER" ;;
fence) npx vitest run fence.test.js ;;
--) shift && npx vitest run "$@" ;;
*)
    npx tsc
    npx vitest run --exclude fence.test.js
    "$REDLATCH_CLIENTS/conformance/run.py" --adapter "$ADAPTER"
    ;;
esac
