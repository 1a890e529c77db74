#!/usr/bin/env bash
# Builds the jar, installs it into the local Maven repository, and runs the tests of the client against it, as a user's
# project would.
#
#   check.sh          all tests; the scenarios with the newest Jedis and Lettuce, and with the oldest
#   check.sh nodes    only the scenarios on two nodes on etcd
#   check.sh fence    only those with databases
#   check.sh measure  no tests, but what a lock costs this process: clients.Measure says how
#
# REDLATCH_BINARY names the program; without it the debug build is made. REDLATCH_REDIS_SERVER, REDLATCH_VALKEY_SERVER and
# REDLATCH_ETCD name other programs; what is missing is skipped, and said, unless REDLATCH_REQUIRE_CLIENTS or
# REDLATCH_REQUIRE_DATABASES is set.
set -euo pipefail
program="${REDLATCH_BINARY:+$(realpath "$REDLATCH_BINARY")}"
cd "$(dirname "$0")"

readonly OLDEST=(-Djedis.version=5.2.0 -Dlettuce.version=6.3.2.RELEASE)
CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-../../../target}")"
readonly SHOP="$CARGO_TARGET_DIR/ci/java-client"
export CARGO_TARGET_DIR

if [ -z "$program" ]; then
    cargo build --locked --bin redlatch
    program="$CARGO_TARGET_DIR/debug/redlatch"
fi
readonly RUNNER="$PWD/../conformance/run.py"
export REDLATCH_BINARY="$program"
mkdir -p "$SHOP"
rm -rf "$SHOP/build" "$SHOP/tests"

# maven ARGUMENT ...
maven() {
    mvn --batch-mode --no-transfer-progress "$@"
}
# The servers are started by the test package.
maven --quiet --file ../../java/pom.xml -Dbuild.folder="$SHOP/junit" install
maven --quiet -Dbuild.folder="$SHOP/build" install

mkdir -p "$SHOP/tests/src/test/java/examples"
cp -r tests/. "$SHOP/tests"
cp examples/*.java "$SHOP/tests/src/test/java/examples"
cd "$SHOP/tests"
# adapter FOLDER OPTION ...: compiles the tests, and prints the command of their adapter.
adapter() {
    maven --quiet --file "$1/pom.xml" "${@:2}" test-compile dependency:build-classpath -Dmdep.outputFile=classpath >&2
    echo "java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp $1/target/test-classes:$(cat "$1/classpath") clients.Adapter"
}
case "${1:-}" in
    "")
        rm -rf "$SHOP/oldest"
        cp -r "$SHOP/tests" "$SHOP/oldest"
        maven test
        newest="$(adapter "$SHOP/tests")"
        oldest="$(adapter "$SHOP/oldest" "${OLDEST[@]}")"
        "$RUNNER" --adapter java="$newest" --adapter java="$oldest"
        ;;
    nodes)
        newest="$(adapter "$SHOP/tests")"
        "$RUNNER" --nodes --adapter java="$newest"
        ;;
    measure)
        maven --quiet test-compile dependency:build-classpath -Dmdep.outputFile=classpath
        shift
        java -cp "target/test-classes:$(cat classpath)" clients.Measure "$@"
        ;;
    fence) maven -Dtest=FenceTest test ;;
    *)
        echo "check.sh [nodes|fence|measure]" >&2
        exit 2
        ;;
esac
