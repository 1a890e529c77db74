#!/usr/bin/env bash
# Makes the module's zip as a module proxy has it, and runs the examples and tests against that, as a user's module would.
#
#   REDLATCH_BINARY=target/release/redlatch packages/go/check.sh [ARGUMENTS OF GO TEST]
set -euo pipefail
REDLATCH_BINARY="$(realpath "${REDLATCH_BINARY:?names the program}")"
export REDLATCH_BINARY
work="$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../../target}")/packages/go"
cd "$(dirname "$0")"
rm -rf "$work"
mkdir -p "$work"
module=redlatch.dev/redlatchtest

../interface.py go
unformatted="$(gofmt -l .)"
[ -z "$unformatted" ] || { echo "gofmt: $unformatted"; exit 1; }
go vet ./...

# The version is that of the text, so that no cache has another one.
version="v0.1.0-check.$(cat go.mod ./*.go | sha256sum | cut -c1-12)"
proxy="$work/proxy/$module/@v"
mkdir -p "$proxy"
cp go.mod "$proxy/$version.mod"
echo "{\"Version\":\"$version\"}" >"$proxy/$version.info"
python3 - "$proxy/$version.zip" "$module@$version" go.mod README.md ./*.go LICENSE-* <<'END'
import os, sys, zipfile
target, root, *files = sys.argv[1:]
with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
    for file in files:
        packed.write(file, f"{root}/{os.path.basename(file)}")
END

cp -r examples "$work/examples"
cd "$work/examples"
export GOPROXY="file://$work/proxy,$(go env GOPROXY)" GONOSUMDB="$module" GOFLAGS=-mod=mod
go mod edit -dropreplace "$module" -require "$module@$version"
go mod tidy
go vet ./...
go test -count=1 "$@" ./...

# Without REDLATCH_BINARY: a program in the user's cache, and one that the test binary carries.
GOCACHE="$(go env GOCACHE)"
export GOCACHE
mkdir -p "$work/cache/redlatch" "$work/unpacked"
ln -s "$REDLATCH_BINARY" "$work/cache/redlatch/redlatch"
cp "$REDLATCH_BINARY" redlatch
unset REDLATCH_BINARY
XDG_CACHE_HOME="$work/cache" go test -count=1 -run TestALease ./...
XDG_CACHE_HOME="$work/unpacked" go test -count=1 -run TestALease -tags redlatch_embedded ./...
[ -x "$(echo "$work"/unpacked/redlatch/*/redlatch)" ] || { echo "the program is not in the cache"; exit 1; }
