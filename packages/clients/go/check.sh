#!/usr/bin/env bash
# Makes the zips of the modules as a module proxy has them, and runs the tests against those, as a user's module would,
# with the race detector.
#
#   check.sh            all tests, and the scenarios but those with nodes
#   check.sh nodes      the scenarios with two nodes on etcd
#   check.sh fence      those with databases
#
# REDLATCH_BINARY names the program. REDLATCH_REDIS_SERVER, REDLATCH_VALKEY_SERVER and REDLATCH_ETCD name other servers;
# what there is not is skipped, and said, unless REDLATCH_REQUIRE_CLIENTS or REDLATCH_REQUIRE_DATABASES is set.
set -euo pipefail
REDLATCH_BINARY="$(realpath "${REDLATCH_BINARY:?names the program}")"
export REDLATCH_BINARY
work="$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../../../target}")/ci/go-client"
cd "$(dirname "$0")"

readonly what="${1:-all}"
case "$what" in
    all | nodes | fence) ;;
    *) echo "check.sh [nodes|fence]" >&2; exit 64 ;;
esac

rm -rf "$work/proxy" "$work/tests"
mkdir -p "$work/proxy"
unformatted="$(gofmt -l .)"
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
go vet ./...
(cd gocronlocks && go vet ./...)

# The modules of a release. The version is that of their text, so that no cache has another one.
texts=(go.mod ./*.go examples/*.go gocronlocks/go.mod gocronlocks/*.go gocronlocks/examples/*.go)
version="v0.1.0-check.$(cat "${texts[@]}" | sha256sum | cut -c1-12)"
PYTHONPATH=../.. python3 - "$work/proxy" "$version" <<'END'
import pathlib, sys
from release import golang
golang.write_proxy(pathlib.Path(sys.argv[1]), sys.argv[2], seconds=0)
END

cp -r tests "$work/tests"
testing="$(realpath ../../go)"
runner="$(realpath ../conformance/run.py)"
cd "$work/tests"
export GOPROXY="file://$work/proxy,$(go env GOPROXY)" GONOSUMDB='redlatch.dev/*' GOFLAGS=-mod=mod
go mod edit -dropreplace redlatch.dev/locks -dropreplace redlatch.dev/locks/gocronlocks \
    -replace "redlatch.dev/redlatchtest=$testing" \
    -require "redlatch.dev/locks@$version" -require "redlatch.dev/locks/gocronlocks@$version"
go vet ./...
# scenarios OPTION ...
scenarios() {
    go build -race -o "$work/adapter" ./adapter
    "$runner" "$@" --adapter "go=$work/adapter"
}
case "$what" in
    all)
        go test -race -count=1 ./...
        scenarios
        ;;
    nodes) scenarios --nodes ;;
    fence) go test -race -count=1 -run '^(TestPostgres|TestMariaDB|TestSQLite.*|TestOrders)$' ./... ;;
esac
