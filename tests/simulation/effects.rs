//! Any command that writes, in any order, over several databases: whatever it was, the journal tells all of it.
//!
//! Laws    replaying the records gives the same state, after every single command; one command makes one record;
//!         what is refused changes nothing; what only reads changes nothing.

use redlatch::commands::row::Flags;
use redlatch::commands::table;
use redlatch::journal::Mutation;
use redlatch::keyspace::Due;

use crate::parts::{DATABASES, Dice, Fault, Machine, Replica, State, state_of};

const STEPS: u32 = 600;
const KEYS: u64 = 6;

/// One line a command. `k` is a key, `v` a value, `n` a small number, `ms` a lease, `at` and `sec` wall times in
/// milliseconds and seconds around now, `db` a database; all other words stand for themselves.
pub(crate) const COMMANDS: &[&str] = &[
    "APPEND k v",
    "COPY k k",
    "COPY k k DB db REPLACE",
    "DECR k",
    "DECRBY k n",
    "DEL k k k",
    "DELEX k",
    "DELEX k IFEQ v",
    "DELEX k IFNE v",
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
    "MSET k v k v k v",
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
    "SET k v NX PX ms",
    "SET k v PXAT at",
    "SET k v XX PX ms",
    "SETEX k n v",
    "SETNX k v",
    "SETRANGE k n v",
    "SWAPDB db db",
    "UNLINK k k",
    // These only read.
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
    // These are refused, some of them only after a look at the key.
    "INCRBY k 9223372036854775807",
    "PEXPIRE k ms GT NX",
    "SET k v PX 0",
    "SET k v NX XX",
    "SETRANGE k -1 v",
];

/// A release as clients send it; it writes or not, by what it finds.
const SCRIPT: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Runs one world; `Err` names the first law that broke.
pub(crate) fn run(seed: u64, fault: Fault) -> Result<(), String> {
    let machine = Machine::new(seed, fault);
    let mut dice = Dice::new(seed);
    let (mut session, mut replica) = (machine.connect(), Replica::new());
    let mut before = State::new();
    for step in 0..STEPS {
        let what = match dice.below(8) {
            0 => {
                machine.clock.advance(dice.below(25));
                "time".to_owned()
            }
            1 => {
                machine.clock.step_wall(dice.below(4_000) as i64 - 2_000);
                "wall time".to_owned()
            }
            2 => {
                while machine.tick() == Due::More {}
                "tick".to_owned()
            }
            _ => {
                let words = fill(dice.pick(COMMANDS), &mut dice, &machine);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let mut batch = machine.engine.batch();
                let answer = machine.call(&mut session, &mut batch, &words);
                machine.engine.end_batch(&session, batch);
                format!("{words:?} -> {answer:?}")
            }
        };
        let records = replica.follow(&machine.log)?;
        let after = state_of(machine.keyspace(), machine.clock.truth());
        let broken = law_broken(&what, &records, &mut before, &after, &replica, &machine);
        if let Some(law) = broken {
            return Err(format!("step {step}: {law}: {what}; the records {records:?}; the state {after:?}"));
        }
        before = after;
    }
    nothing_is_left(&machine, &mut session, &mut replica)
}

fn law_broken(
    what: &str,
    records: &[Vec<Mutation>],
    before: &mut State,
    after: &State,
    replica: &Replica,
    machine: &Machine,
) -> Option<&'static str> {
    machine.keyspace().assert_laws();
    let now = machine.clock.truth();
    before.retain(|_, (_, until_ms)| until_ms.is_none_or(|until_ms| until_ms >= now.lock.as_millis()));
    let has_effect =
        records.iter().flatten().any(|what| !matches!(what, Mutation::Remove { expired: true, .. }));
    let is_command = what.starts_with('[');
    if replica.living(now) != *after {
        return Some("the replayed records are another state");
    }
    if is_command && records.len() > 1 {
        return Some("one command made several records");
    }
    if what.contains("-> \"-") && (has_effect || *before != *after) {
        return Some("a refused command had an effect");
    }
    if !is_command && (has_effect || *before != *after) {
        return Some("time alone changed what lives");
    }
    if before == after && has_effect && reads(what) {
        return Some("a command that reads made a record of an effect");
    }
    (reads(what) && before != after).then_some("a command that reads changed what lives")
}

/// Whether it is a command whose row says that it only reads.
fn reads(what: &str) -> bool {
    let name = what.strip_prefix("[\"").and_then(|rest| rest.split('"').next()).unwrap_or_default();
    table().find(name.as_bytes()).is_some_and(|command| command.row.flags.has(Flags::READONLY))
}

fn nothing_is_left(
    machine: &Machine,
    session: &mut redlatch::state::session::Session,
    replica: &mut Replica,
) -> Result<(), String> {
    let mut batch = machine.engine.batch();
    machine.call(session, &mut batch, &["FLUSHALL"]);
    replica.follow(&machine.log)?;
    match (replica.remains().len(), machine.keyspace().counts().bytes) {
        (0, 0..=FLOOR_BYTES) => Ok(()),
        left => Err(format!("left when all is flushed: {left:?}")),
    }
}

fn fill(line: &str, dice: &mut Dice, machine: &Machine) -> Vec<String> {
    let wall_ms = machine.clock.truth().wall().as_millis();
    let mut word = |word: &str| match word {
        "k" => format!("k{}", dice.below(KEYS)),
        "v" => dice
            .pick(&["", "mine", "theirs", "a value too long to be kept in place, whatever place that is"])
            .into(),
        "n" => (1 + dice.below(12)).to_string(),
        "ms" => (1 + dice.below(60)).to_string(),
        "at" => (wall_ms + dice.below(60) - 20).to_string(),
        "sec" => (wall_ms / 1_000 + dice.below(3)).to_string(),
        "db" => dice.below(u64::from(DATABASES)).to_string(),
        "SCRIPT" => SCRIPT.to_owned(),
        other => other.to_owned(),
    };
    line.split(' ').map(&mut word).collect()
}

/// What empty shards may keep for the next key: their smallest tables.
pub(crate) const FLOOR_BYTES: usize = 16 * 1024;

/// Rows that write, but have no line above.
pub(crate) fn commands_without_a_line() -> Vec<&'static str> {
    let writes = table().commands().iter().filter(|command| command.row.flags.has(Flags::WRITE));
    let named = |name: &str| COMMANDS.iter().any(|line| line.split(' ').next() == Some(name));
    writes.map(|command| command.row.name).filter(|name| !named(name)).collect()
}
