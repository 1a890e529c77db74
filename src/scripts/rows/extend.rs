//! Rows that renew a lease.
//!
//! Owns    nothing but the list. Each text is our own spelling of what a client sends, each program what it does.

use super::prelude::*;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "compare-and-add to the lease, or replace it",
        sent_by: "redis-py and valkey-py from 3.5 on",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               local n = ARGV[2] if ARGV[3] == '0' then n = ARGV[2] + t end redis.call('pexpire', KEYS[1], n) return 1",
        steps: &[holder(
            &[
                Step::Keep(call(1, "PTTL", &[K1])),
                Step::IfKept { is: Test::Below(0), then: ZERO },
                Step::IfSame {
                    left: Role::Argument(3),
                    right: Role::Literal("0"),
                    then: &[Step::Call(call(2, "PEXPIRE", &[K1, Arg::KeptPlus(Role::Argument(2))]))],
                    otherwise: &[Step::Call(call(2, "PEXPIRE", &[K1, A2]))],
                },
                integer(1),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-add to the lease",
        sent_by: "coredis; redis-py before 3.5 is alike",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               redis.call('pexpire', KEYS[1], t + ARGV[2]) return 1",
        steps: ADD_MILLIS,
    },
    Row {
        name: "compare-and-add to the lease",
        sent_by: "redis-py before 3.5",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               redis.call('pexpire', KEYS[1], ARGV[2] + t) return 1",
        steps: ADD_MILLIS,
    },
    Row {
        name: "compare-and-pexpire a key that has a lease",
        sent_by: "celery-redbeat",
        text: "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end \
               local t = redis.call('pttl', KEYS[1]) if not t then t = 0 end if t < 0 then return 0 end \
               redis.call('pexpire', KEYS[1], ARGV[2]) return 1",
        steps: &[holder(
            &[
                Step::Keep(call(1, "PTTL", &[K1])),
                Step::IfKept { is: Test::Below(0), then: ZERO },
                Step::Call(call(2, "PEXPIRE", &[K1, A2])),
                integer(1),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-add to the lease, seconds",
        sent_by: "redis-lock-py",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end local t = redis.call('ttl', KEYS[1]) \
               if t < 0 then return 0 end redis.call('expire', KEYS[1], t + ARGV[2]) return 1",
        steps: &[holder(
            &[
                Step::Keep(call(1, "TTL", &[K1])),
                Step::IfKept { is: Test::Below(0), then: ZERO },
                Step::Call(call(2, "EXPIRE", &[K1, Arg::KeptPlus(Role::Argument(2))])),
                integer(1),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-add to a positive lease, seconds",
        sent_by: "@upstash/lock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end local t = redis.call('ttl', KEYS[1]) \
               if t > 0 then return redis.call('expire', KEYS[1], t + ARGV[2]) else return 0 end",
        steps: &[holder(
            &[
                Step::Keep(call(1, "TTL", &[K1])),
                Step::IfKept {
                    is: Test::Above(0),
                    then: &[Step::Return(Give::Call(call(
                        2,
                        "EXPIRE",
                        &[K1, Arg::KeptPlus(Role::Argument(2))],
                    )))],
                },
                integer(0),
            ],
            ZERO,
        )],
    },
    Row {
        name: "compare-and-expire a key that has a lease, told in three ways",
        sent_by: "python-redis-lock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 elseif redis.call('ttl', KEYS[1]) < 0 then \
               return 2 else redis.call('expire', KEYS[1], ARGV[2]) return 0 end",
        steps: &[holder(
            &[Step::If {
                reply: call(1, "TTL", &[K1]),
                is: Test::Below(0),
                then: &[integer(2)],
                otherwise: &[Step::Call(call(2, "EXPIRE", &[K1, A2])), integer(0)],
            }],
            &[integer(1)],
        )],
    },
    Row {
        // A string never equals a number, so the lease is always set, even to -1, which deletes the key.
        name: "compare-and-expire by a result",
        sent_by: "sherlock",
        text: "local r = 0 if redis.call('get', KEYS[1]) == ARGV[1] then if ARGV[2] ~= -1 then \
               redis.call('expire', KEYS[1], ARGV[2]) else redis.call('persist', KEYS[1]) end r = 1 end return r",
        steps: &[holder(&[Step::Call(call(1, "EXPIRE", &[K1, A2])), integer(1)], ZERO)],
    },
    Row {
        // The reply of SET is never nil, so it is 1 for every holder.
        name: "compare-and-set, then 1",
        sent_by: "rslock",
        text: "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 else \
               if redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) ~= nil then return 1 else return 0 end end",
        steps: &[holder(&[Step::Call(call(1, "SET", &[K1, A1, PX, A2])), integer(1)], ZERO)],
    },
    Row {
        name: "compare-and-pexpire with a least remaining lease",
        sent_by: "redlock-universal",
        text: "local t = redis.call('pttl', KEYS[1]) local least = tonumber(ARGV[2]) local n = tonumber(ARGV[3]) \
               if t == -2 then return {-1, -2} end if t < least then return {0, t} end \
               local v = redis.call('get', KEYS[1]) if v == ARGV[1] then redis.call('pexpire', KEYS[1], n) \
               return {1, t} else return {-1, t} end",
        steps: &[
            Step::Keep(call(0, "PTTL", &[K1])),
            Step::IfKept { is: Test::Equals(-2), then: &[Step::Return(Give::Pair(-1, -2))] },
            Step::IfKept {
                is: Test::BelowOperand(Role::Argument(2)),
                then: &[Step::Return(Give::PairKept(0))],
            },
            Step::Holder {
                get: get(1),
                token: TOKEN,
                held: &[
                    Step::Call(call(2, "PEXPIRE", &[K1, Arg::Number(Role::Argument(3))])),
                    Step::Return(Give::PairKept(1)),
                ],
                missing: &[Step::Return(Give::PairKept(-1))],
                other: &[Step::Return(Give::PairKept(-1))],
            },
        ],
    },
];
