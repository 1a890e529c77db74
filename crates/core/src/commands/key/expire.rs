//! Deadlines of keys: EXPIRE and its variants set them, TTL and its variants read them, PERSIST removes them.
//!
//! Source  Redis 7.0 `expire.c`.

use redlatch_proto::clock::{Deadline, Now};
use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::expiry::{self, Unit};
use crate::commands::row::{Arg, Flags, Group, Row, integer, key, one_of, token, unix_time};
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::Entry;
use crate::locks::{HolderRequest, RequestOutcome};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Generic, "EXPIRE", "1.0.0", expire)
        .summary("Sets the lease of a key, in seconds from now.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), integer("seconds"), CONDITION.maybe()]),
    Row::new(Group::Generic, "EXPIREAT", "1.2.0", expireat)
        .summary("Sets the end of the lease of a key, in seconds of Unix time.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), unix_time("unix-time-seconds"), CONDITION.maybe()]),
    Row::new(Group::Generic, "EXPIRETIME", "7.0.0", expiretime)
        .summary("Returns the second of Unix time in which a key ends.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Generic, "PERSIST", "2.2.0", persist)
        .summary("Removes the lease of a key.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Generic, "PEXPIRE", "2.6.0", pexpire)
        .summary("Sets the lease of a key, in milliseconds from now.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), integer("milliseconds"), CONDITION.maybe()]),
    Row::new(Group::Generic, "PEXPIREAT", "2.6.0", pexpireat)
        .summary("Sets the end of the lease of a key, in milliseconds of Unix time.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), unix_time("unix-time-milliseconds"), CONDITION.maybe()]),
    Row::new(Group::Generic, "PEXPIRETIME", "7.0.0", pexpiretime)
        .summary("Returns the millisecond of Unix time in which a key ends.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Generic, "PTTL", "2.6.0", pttl)
        .summary("Returns the rest of the lease of a key, in milliseconds.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Generic, "TTL", "1.0.0", ttl)
        .summary("Returns the rest of the lease of a key, in seconds.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
];

const CONDITION: Arg =
    one_of("condition", &[token("nx", "NX"), token("xx", "XX"), token("gt", "GT"), token("lt", "LT")]);

/// The conditions under which a deadline is set; all must hold.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    /// NX: only if there is no deadline.
    nx: bool,
    /// XX: only if there is a deadline.
    xx: bool,
    /// GT: only a later deadline; no deadline counts as the latest.
    gt: bool,
    /// LT: only an earlier deadline.
    lt: bool,
}

impl Conditions {
    #[inline]
    fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        if args.is_empty() { Ok(Self::default()) } else { Self::parse_some(args) }
    }

    fn parse_some(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let mut found = Self::default();
        while let Some(word) = args.peek() {
            if args.take("NX") {
                found.nx = true;
            } else if args.take("XX") {
                found.xx = true;
            } else if args.take("GT") {
                found.gt = true;
            } else if args.take("LT") {
                found.lt = true;
            } else {
                return Err(Refusal::quoting("ERR Unsupported option ", word, ""));
            }
        }
        match found {
            Self { nx: true, xx, gt, lt } if xx || gt || lt => {
                Err(Refusal::said("ERR NX and XX, GT or LT options at the same time are not compatible"))
            }
            Self { gt: true, lt: true, .. } => {
                Err(Refusal::said("ERR GT and LT options at the same time are not compatible"))
            }
            _ => Ok(found),
        }
    }

    /// True if the conditions allow `new` in place of `old`.
    fn hold(self, old: Option<Deadline>, new: Deadline) -> bool {
        match old {
            None => !self.xx && !self.gt,
            Some(old) => !(self.nx || (self.gt && new <= old) || (self.lt && new >= old)),
        }
    }
}

fn expire(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadline(call, Unit::Secs, "expire")
}

fn expireat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadline(call, Unit::UnixSecs, "expireat")
}

fn pexpire(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadline(call, Unit::Millis, "pexpire")
}

fn pexpireat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadline(call, Unit::UnixMillis, "pexpireat")
}

fn set_deadline(call: &mut Call<'_, '_>, unit: Unit, command: &'static str) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;
    // Redis checks the options before the number.
    let conditions = Conditions::parse(&mut call.args)?;
    let value = number::integer(value).ok_or(Refusal::NotAnInteger)?;
    let deadline = unit.deadline(value, call.now, command)?;

    let mut is_holders = false;
    // The entry is changed in place, because moving it costs as much as changing it.
    let is_set = match &mut call.view.entry(name) {
        Entry::Occupied(found) => {
            let old = found.deadline();
            // Looked up only if a lock was lost.
            let grant = if found.has_lost() { found.granted() } else { None };
            is_holders = grant.is_none_or(|grant| grant.holder == call.session.client.id);
            let holds = conditions.hold(old, deadline);
            if holds {
                expiry::set_or_delete(found, deadline, call.now)?;
            }
            holds
        }
        Entry::Vacant(_) => false,
    };
    if !is_holders {
        call.comes_to(RequestOutcome::NotHeld(HolderRequest::Extend), name, None);
    }

    call.reply.integer(i64::from(is_set));
    Ok(Outcome::Replied)
}

fn ttl(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadline(call, |now, deadline| nearest_second(now.millis_until(deadline)))
}

fn pttl(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadline(call, Now::millis_until)
}

fn expiretime(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadline(call, |now, deadline| nearest_second(now.wall_ms_of(deadline)))
}

fn pexpiretime(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadline(call, Now::wall_ms_of)
}

/// Answers the deadline of the key, as `convert` returns it; -1 if it has none, -2 if the key does not exist.
fn answer_deadline(call: &mut Call<'_, '_>, convert: fn(Now, Deadline) -> i64) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let deadline = call.view.peek(name).map(|found| found.deadline());

    call.reply.integer(match deadline {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => convert(call.now, deadline),
    });
    Ok(Outcome::Replied)
}

/// Milliseconds as seconds, rounded half up.
pub(in crate::commands) const fn nearest_second(millis: i64) -> i64 {
    (millis / 1000).saturating_add((millis % 1000 >= 500) as i64)
}

fn persist(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let had_deadline = expiry::persist(call.view, name)?;

    call.reply.integer(i64::from(had_deadline));
    Ok(Outcome::Replied)
}
