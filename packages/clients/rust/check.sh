#!/usr/bin/env bash
# Builds the adapter of the client for Rust, crates/client, and does the scenarios of ../conformance with it. Its other tests are those
# of the crate and tests/locks/lock_client.rs.
#
#   check.sh             all scenarios but those with nodes; what is missing is skipped
#   check.sh nodes       those with nodes on etcd
#   check.sh fence       nothing: the client knows no databases, it has the statement alone
#
# REDLATCH_BINARY names the program; without it the debug build is made.
set -euo pipefail
if [ "${1:-}" = fence ]; then
    exit
fi
program="${REDLATCH_BINARY:+$(realpath "$REDLATCH_BINARY")}"
cd "$(dirname "$0")"

CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-../../../target}")"
export CARGO_TARGET_DIR
if [ -z "$program" ]; then
    cargo build --locked --bin redlatch
    program="$CARGO_TARGET_DIR/debug/redlatch"
fi
cargo build --locked --package redlatch-client --example adapter

PYTHONPATH="$(realpath ../../python/python)"
export REDLATCH_BINARY="$program" PYTHONPATH
readonly ADAPTER="rust=$CARGO_TARGET_DIR/debug/examples/adapter"
case "${1:-}" in
nodes) ../conformance/run.py --nodes --adapter "$ADAPTER" ;;
*) ../conformance/run.py --adapter "$ADAPTER" ;;
esac
