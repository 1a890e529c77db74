//! Rows that only look.
//!
//! Owns    nothing but the list. Each text is our own spelling of what a client sends, each program what it does.

use super::prelude::*;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "guarded pttl, never negative",
        sent_by: "pottery",
        text: "if redis.call('get', KEYS[1]) == ARGV[1] then local t = redis.call('pttl', KEYS[1]) \
               return (t > 0) and t or 0 else return 0 end",
        steps: &[holder(
            &[
                Step::Keep(call(1, "PTTL", &[K1])),
                Step::IfKept { is: Test::Above(0), then: &[Step::Return(Give::Kept)] },
                integer(0),
            ],
            ZERO,
        )],
    },
    Row {
        name: "guarded ttl, with an error",
        sent_by: "aioredlock",
        text: "local v = redis.call('get', KEYS[1]) if not v then return redis.error_reply('ERROR') elseif \
               v == ARGV[1] then return redis.call('ttl', KEYS[1]) else return redis.error_reply('ERROR') end",
        steps: &[holder(&[Step::Return(Give::Call(call(1, "TTL", &[K1])))], REFUSED)],
    },
    Row {
        name: "value and lease",
        sent_by: "redlock-universal",
        text: "local v = redis.call('get', KEYS[1]) if not v then return nil end \
               local t = redis.call('pttl', KEYS[1]) return {v, t}",
        steps: &[Step::Return(Give::TextAndNumber {
            text: get(0),
            number: call(1, "PTTL", &[K1]),
            or_nil: true,
        })],
    },
    Row {
        name: "value and lease, null where missing",
        sent_by: "redlock-rb",
        text: "return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1])}",
        steps: &[Step::Return(Give::TextAndNumber {
            text: get(0),
            number: call(1, "PTTL", &[K1]),
            or_nil: false,
        })],
    },
    Row {
        name: "a read",
        sent_by: "probes and hand-written scripts",
        text: "return redis.call('get', KEYS[1])",
        steps: &[Step::Return(Give::Call(get(0)))],
    },
    Row {
        name: "two reads",
        sent_by: "Redisson, to learn whether it talks to a cluster",
        text: "redis.call('get', KEYS[1]) redis.call('get', KEYS[2])",
        steps: &[Step::Call(get(0)), Step::Call(call(1, "GET", &[K2]))],
    },
];
