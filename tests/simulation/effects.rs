//! Any sequence of writing commands over several databases: the journal records every effect.
//!
//! Laws    replaying the records gives an equal state, with equal grants, after every command; one command makes one
//!         record; a refused or read-only command changes nothing; grants of locks less their ends are holders.

use redlatch_core::commands::row::Flags;
use redlatch_core::commands::table;
use redlatch_core::journal::{Edit, LockEdit, Mutation};
use redlatch_core::keyspace::Due;

use super::lock_balance::{Balance, Counted};
use super::parts::{DATABASES, Fault, Machine, Replica, State, grants, living, standing};
use crate::support::rng::Rng;

const STEPS: u32 = 800;
const KEYS: u64 = 6;

/// One command per line, or several joined by ` | `. `k` is a key, `v` a value, `n` a small number, `ms` a lease,
/// `at` and `sec` wall times in milliseconds and seconds around now, `db` a database, `f` a field, `m` a member, `i` an
/// index, `s` a score, `n-n` an id; `h` `l` `t` `x` `z` are keys that mostly hold a hash, a list, a set, a stream, a
/// sorted set. All other words stand for themselves.
pub(crate) const COMMANDS: &[&str] = &[
    "APPEND k v",
    "COPY k k",
    "COPY k k DB db REPLACE",
    "MOVE k db",
    "DECR k",
    "DECRBY k n",
    "DEL k k k",
    "DELEX k",
    "DELEX k IFEQ v",
    "DELEX k IFNE v",
    "DELEX k IFDNE 0123456789abcdef",
    "DELIFEQ k v",
    "EVAL SCRIPT 1 k v",
    "EVAL SCRIPT 1 k v",
    "EXPIRE k n",
    "EXPIREAT k sec",
    "FLUSHALL",
    "FLUSHDB ASYNC",
    "GETDEL k",
    "GETEX k PERSIST",
    "GETEX k PX ms",
    "GETSET k v",
    "INCR k",
    "INCRBY k n",
    "INCRBYFLOAT k 0.5",
    "INCREX k BYINT n UBOUND 100 SATURATE PX ms ENX",
    "INCREX k BYFLOAT 0.5 EXAT sec",
    "LOCK.ACQUIRE k v",
    "LOCK.ACQUIRE k v LEASE ms REENTRANT",
    "LOCK.ACQUIRE k v LEASE ms SHARED",
    "LOCK.ACQUIRE k v LEASE ms PERMITS 1 OF 2",
    "LOCK.ACQUIRE k v SESSION",
    "LOCK.BREAK k TOKEN n",
    "LOCK.EXTEND k v LEASE ms",
    "LOCK.GUARD k n",
    "LOCK.MACQUIRE 2 k k v LEASE ms",
    "LOCK.MACQUIRE 2 k k v ANY 1 MODE 2 SHARED LEASE ms",
    "LOCK.RELEASE k v",
    "LOCK.TRANSFER k v TO v LEASE ms",
    "LOCK.TRANSFER k v TO w LEASE ms",
    "MSET k v k v k v",
    "MSETEX 2 k v k v PX ms",
    "MSETEX 2 k v k v NX PX ms",
    "MSETNX k v k v",
    "PERSIST k",
    "PEXPIRE k ms",
    "PEXPIRE k ms GT",
    "PEXPIRE k ms NX",
    "PEXPIREAT k at",
    "PSETEX k ms v",
    "RENAME k k",
    "RENAMENX k k",
    "SELECT db",
    "SET k v",
    "SET k n",
    "SET k v EX n",
    "SET k v GET KEEPTTL",
    "SET k v IFEQ v PX ms",
    "SET k v IFDNE 0123456789abcdef KEEPTTL",
    "SET k v NX PX ms",
    "SET k v PXAT at",
    "SET k v XX PX ms",
    "SETEX k n v",
    "SETNX k v",
    "SETRANGE k n v",
    "SWAPDB db db",
    "UNLINK k k",
    // Hashes.
    "HDEL h f f",
    "HGETDEL h FIELDS 2 f f",
    "HINCRBY h f n",
    "HINCRBYFLOAT h f 0.5",
    "HMSET h f v f v",
    "HSET h f v",
    "HSET h f v f v f n",
    "HSETNX h f v",
    // Lists.
    "LINSERT l BEFORE m m",
    "LMOVE l l LEFT RIGHT",
    "LMPOP 2 l l RIGHT COUNT n",
    "LPOP l",
    "LPOP l n",
    "LPUSH l m m m",
    "LPUSHX l m",
    "LREM l i m",
    "LSET l i m",
    "LTRIM l i i",
    "RPOP l n",
    "RPOPLPUSH l l",
    "RPUSH l m v",
    "RPUSHX l m",
    // Sets.
    "SADD t m m m",
    "SADD t n n",
    "SMOVE t t m",
    "SPOP t",
    "SPOP t n",
    "SREM t m m",
    // Sorted sets.
    "ZADD z s m s m s m",
    "ZADD z GT CH s m",
    "ZADD z NX s m",
    "ZADD z XX INCR s m",
    "ZINCRBY z s m",
    "ZMPOP 2 z z MIN COUNT n",
    "ZPOPMAX z",
    "ZPOPMIN z n",
    "ZINTERSTORE z 2 z z WEIGHTS s s AGGREGATE MAX",
    "ZINTERSTORE z 2 z t",
    "ZRANGESTORE z z 0 i",
    "ZREM z m m",
    "ZREMRANGEBYLEX z [a [c",
    "ZREMRANGEBYRANK z i i",
    "ZREMRANGEBYSCORE z (1 s",
    // Streams.
    "XADD x * f v",
    "XADD x MAXLEN n * f v f v",
    "XADD x n-n f v",
    "XTRIM x MAXLEN n",
    // Blocking commands do not wait in a transaction.
    "MULTI | BLMOVE l l LEFT RIGHT 0 | BRPOPLPUSH l l 0 | EXEC",
    "MULTI | BLPOP l 0 | BRPOP l l 0 | BLMPOP 0 2 l l LEFT COUNT n | EXEC",
    "MULTI | BZPOPMIN z 0 | BZPOPMAX z z 0 | BZMPOP 0 2 z z MAX COUNT n | EXEC",
    // Transactions.
    "MULTI | SET k v PX ms | HSET h f v | LPUSH l m | PEXPIRE k ms | DEL k | SELECT db | EXEC",
    "MULTI | HSET h f v | LMOVE l l LEFT LEFT | GET k | RENAME h h | SWAPDB db db | EXEC",
    "MULTI | DEL h l t z | DISCARD",
    // Read-only commands.
    "EXISTS k k",
    "GET k",
    "GETEX k",
    "GETRANGE k 0 n",
    "KEYS *",
    "MGET k k k",
    "PTTL k",
    "RANDOMKEY",
    "SCAN 0 COUNT 100",
    "STRLEN k",
    "TOUCH k k",
    "HGETALL h",
    "HMGET h f f",
    "LPOS l m",
    "LRANGE l 0 -1",
    "OBJECT ENCODING h",
    "SMEMBERS t",
    "SRANDMEMBER t n",
    "TYPE h",
    "ZRANGE z 0 -1",
    "ZSCAN z 0",
    // Refused commands, some of them only after the key was read.
    "INCRBY k 9223372036854775807",
    "PEXPIRE k ms GT NX",
    "SET k v PX 0",
    "SET k v NX XX",
    "SETRANGE k -1 v",
    "LSET l 1000 m",
    "ZADD z nan m",
    "ZADD z NX XX s m",
];

/// The calls on which a second client blocks, in the notation of [`COMMANDS`].
pub(crate) const WAITS: &[&str] = &[
    "BLMOVE l l LEFT RIGHT 0", "BLMPOP 0 2 l l LEFT COUNT n", "BLPOP l l 0", "BRPOPLPUSH l l 0",
    "BZMPOP 0 2 z z MAX COUNT n", "BZPOPMIN z z 0",
];

/// A release as clients send it; whether it writes depends on the key.
const SCRIPT: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Runs one simulation; `Err` names the first broken law.
pub(crate) fn run(seed: u64, fault: Fault) -> Result<(), String> {
    let machine = Machine::new(seed, fault);
    let mut rng = Rng::new(seed);
    let (mut session, mut waiter, mut replica) = (machine.connect(), machine.connect(), Replica::new());
    let mut balance = Balance::default();
    let mut before = State::new();
    for step in 0..STEPS {
        machine.resume(&mut waiter);
        let what = match rng.below_u64(9) {
            0 => {
                machine.clock.advance(rng.below_u64(25));
                "time".to_owned()
            }
            1 => {
                machine.clock.step_wall(rng.below_u64(4_000) as i64 - 2_000);
                "wall time".to_owned()
            }
            2 => {
                while machine.tick() == Due::More {}
                "tick".to_owned()
            }
            3 if waiter.parked.is_none() => {
                let words = fill(rng.pick(WAITS), &mut rng, machine.wall_ms());
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let mut batch = machine.engine.batch();
                let answer = machine.offer(&mut waiter, &mut batch, &words);
                machine.engine.end_batch(&mut waiter, batch);
                format!("{words:?} -> {answer:?}")
            }
            _ => {
                let (mut sent, mut answer) = (Vec::new(), String::new());
                let mut batch = machine.engine.batch();
                for line in rng.pick(COMMANDS).split(" | ") {
                    let words = fill(line, &mut rng, machine.wall_ms());
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    answer = machine.call(&mut session, &mut batch, &words);
                    sent.push(format!("{words:?}"));
                }
                machine.engine.end_batch(&mut session, batch);
                format!("{} -> {answer:?}", sent.join(" "))
            }
        };
        let records = replica.follow(&machine.log);
        if fault == Fault::None {
            let server = (machine.keyspace(), machine.clock.truth());
            let balanced = balance.check(&records, server, Counted::of(machine.keyspace()));
            balanced.map_err(|why| format!("step {step}: {why}: {what}; the records {records:?}"))?;
        }
        let standing = standing(machine.keyspace(), machine.clock.truth());
        if standing != replica.remains() {
            let replayed = replica.remains();
            return Err(format!(
                "step {step}: {what}: {records:?}: replayed {replayed:?}, there is {standing:?}"
            ));
        }
        let (granted, replayed) = (grants(machine.keyspace(), machine.clock.truth()), replica.grants());
        if granted != replayed {
            return Err(format!(
                "step {step}: {what}: {records:?}: replayed {replayed:?}, granted are {granted:?}"
            ));
        }
        let after = living(&standing, machine.clock.truth());
        let broken = law_broken(&what, &records, &before, &after, &machine);
        if let Some(law) = broken {
            return Err(format!("step {step}: {law}: {what}; the records {records:?}; the state {after:?}"));
        }
        before = standing;
    }
    machine.engine.disconnect(&mut waiter);
    nothing_is_left(&machine, &mut session, &mut replica)
}

fn law_broken(
    what: &str,
    records: &[Vec<Mutation>],
    before: &State,
    after: &State,
    machine: &Machine,
) -> Option<&'static str> {
    machine.keyspace().assert_laws();
    let now = machine.clock.truth();
    let before = &living(before, now);
    // A removed holder shows in the live state, unless its lease ended.
    let ended = |what: &Mutation| match what {
        Mutation::Edit { edit: Edit::Lock(LockEdit::Remove(_)), .. } => true,
        Mutation::Remove { expired, .. } => *expired,
        _ => false,
    };
    let has_effect = !records.iter().flatten().all(ended);
    let is_command = what.starts_with('[');
    if is_command && records.len() > 1 {
        return Some("one command made several records");
    }
    if what.contains("-> \"-") && (has_effect || before != after) {
        return Some("a refused command had an effect");
    }
    if !is_command && (has_effect || before != after) {
        return Some("time alone changed what lives");
    }
    if before == after && has_effect && reads(what) {
        return Some("a command that reads made a record of an effect");
    }
    (reads(what) && before != after).then_some("a command that reads changed what lives")
}

/// Whether the command's row says that it is read-only.
fn reads(what: &str) -> bool {
    let name = what.strip_prefix("[\"").and_then(|rest| rest.split('"').next()).unwrap_or_default();
    table().find(name.as_bytes()).is_some_and(|command| command.row.flags.has(Flags::READONLY))
}

fn nothing_is_left(
    machine: &Machine,
    session: &mut redlatch_core::state::session::Session,
    replica: &mut Replica,
) -> Result<(), String> {
    let mut batch = machine.engine.batch();
    machine.call(session, &mut batch, &["FLUSHALL"]);
    replica.follow(&machine.log);
    match (replica.remains().len(), machine.keyspace().counts().bytes) {
        (0, 0..=FLOOR_BYTES) => Ok(()),
        left => Err(format!("left when all is flushed: {left:?}")),
    }
}

/// Fills in the words of a line at the wall time `wall_ms`.
pub(crate) fn fill(line: &str, rng: &mut Rng, wall_ms: u64) -> Vec<String> {
    let mut word = |word: &str| match word {
        "k" => format!("k{}", rng.below_u64(KEYS)),
        "v" => rng
            .pick(&["", "mine", "theirs", "a value too long to be kept in place, whatever place that is"])
            .into(),
        "h" | "l" | "t" | "x" | "z" if rng.below_u64(20) > 0 => format!("{word}{}", rng.below_u64(3)),
        "h" | "l" | "t" | "x" | "z" => format!("k{}", rng.below_u64(KEYS)),
        "f" => format!("f{}", rng.below_u64(5)),
        "m" => rng
            .pick(&[
                "a",
                "b",
                "c",
                "7",
                "-3",
                "a member of more than sixty-four bytes, which makes a table of a small set",
            ])
            .into(),
        "i" => (rng.below_u64(7) as i64 - 3).to_string(),
        "s" => rng.pick(&["1", "-1", "0", "2.5", "inf", "-inf", "1e17"]).into(),
        "n" => (1 + rng.below_u64(12)).to_string(),
        "ms" => (1 + rng.below_u64(60)).to_string(),
        "at" => (wall_ms + rng.below_u64(60) - 20).to_string(),
        "sec" => (wall_ms / 1_000 + rng.below_u64(3)).to_string(),
        "n-n" => format!("{}-{}", 1 + rng.below_u64(3), rng.below_u64(4)),
        "db" => rng.below_u64(u64::from(DATABASES)).to_string(),
        "SCRIPT" => SCRIPT.to_owned(),
        other => other.to_owned(),
    };
    line.split(' ').map(&mut word).collect()
}

/// The memory that empty shards may keep: their smallest tables.
pub(crate) const FLOOR_BYTES: usize = 16 * 1024;

/// Writing commands without a line in [`COMMANDS`].
pub(crate) fn commands_without_a_line() -> Vec<&'static str> {
    let writes = table().commands().iter().filter(|command| command.row.flags.has(Flags::WRITE));
    let lines = || COMMANDS.iter().flat_map(|line| line.split(" | "));
    let named = |name: &str| lines().any(|line| line.split(' ').next() == Some(name));
    writes.map(|command| command.row.name).filter(|name| !named(name)).collect()
}
