//! Conditions on the string that a key holds, and what compares it: DELEX, DELIFEQ, DIGEST.
//!
//! Source  IFEQ, DELIFEQ of Valkey 8.1 / 9.0; IFNE, IFDEQ, IFDNE, DELEX, DIGEST of Redis 8.4's documentation,
//!         redis.io/commands; the length of a digest, and its letter case, of redis#14502.

use redlatch_proto::error::Refusal;
use twox_hash::XxHash3_64;

use crate::commands::args;
use crate::commands::row::{Arg, Flags, Group, Row, key, one_of, text, token};
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::Occupied;
use crate::locks::{EndReason, HolderRequest, RequestOutcome};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::String, "DELEX", "8.4.0", delex)
        .summary("Deletes a key, if it holds that string or does not (Redis 8.4).")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), COMPARISON.maybe()]),
    Row::new(Group::String, "DELIFEQ", "9.0.0", delifeq)
        .summary("Deletes a key if it holds that string (Valkey 9.0).")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), text("value")]),
    Row::new(Group::String, "DIGEST", "8.4.0", digest)
        .summary("Returns the XXH3 hash of the string value of a key, as 16 hexadecimal digits (Redis 8.4).")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
];

const COMPARISON: Arg = one_of("condition", &[IFEQ, IFNE, IFDEQ, IFDNE]);

pub(super) const CONDITION: Arg =
    one_of("condition", &[token("nx", "NX"), token("xx", "XX"), IFEQ, IFNE, IFDEQ, IFDNE]);

const IFEQ: Arg = text("comparison-value").after("IFEQ");
const IFNE: Arg = text("comparison-value").after("IFNE");
const IFDEQ: Arg = text("digest").after("IFDEQ");
const IFDNE: Arg = text("digest").after("IFDNE");

/// The condition under which SET or DELEX acts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Condition<'a> {
    Always,
    Absent,
    Present,
    Equal(&'a [u8]),
    Unequal(&'a [u8]),
    /// The digest is that.
    DigestEqual(&'a [u8]),
    DigestUnequal(&'a [u8]),
}

impl Condition<'_> {
    pub(super) fn holds(self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equal(wanted) => value == Some(wanted),
            Self::Unequal(unwanted) => value != Some(unwanted),
            Self::DigestEqual(wanted) => value.is_some_and(|value| has_digest(value, wanted)),
            Self::DigestUnequal(unwanted) => !value.is_some_and(|value| has_digest(value, unwanted)),
        }
    }

    /// True if the condition compares the value.
    pub(super) const fn is_comparison(self) -> bool {
        !matches!(self, Self::Always | Self::Absent | Self::Present)
    }

    /// Why a lock ends whose key is deleted under this condition: who knows the value releases it, on whatever connection.
    const fn end_reason(self) -> EndReason {
        match self {
            Self::Equal(_) | Self::DigestEqual(_) => EndReason::Released,
            _ => EndReason::Deleted,
        }
    }
}

impl<'a> Condition<'a> {
    /// Takes `option` if it is NX or XX, which may be repeated, as in Redis. Returns false if it is another option.
    #[inline]
    pub(super) fn take_existence(&mut self, option: u64) -> Result<bool, Refusal> {
        const NX: u64 = args::option(b"NX");
        const XX: u64 = args::option(b"XX");
        let new = match option {
            NX => Self::Absent,
            XX => Self::Present,
            _ => return Ok(false),
        };
        if *self != Self::Always && *self != new {
            return Err(Refusal::Syntax);
        }
        *self = new;
        Ok(true)
    }

    /// Takes `option` and its value if it is a comparison, which may not be repeated, as in Valkey. Returns false if it is
    /// another option.
    pub(super) fn take_comparison(&mut self, option: u64, args: &mut Args<'a>) -> Result<bool, Refusal> {
        let Some(compare) = Self::comparison(option) else { return Ok(false) };
        let value = args.word()?;
        if *self != Self::Always {
            return Err(Refusal::Syntax);
        }
        *self = compare(value).checked()?;
        Ok(true)
    }

    /// The comparison of this name, of a value that follows.
    fn comparison(option: u64) -> Option<fn(&'a [u8]) -> Self> {
        const IFEQ: u64 = args::option(b"IFEQ");
        const IFNE: u64 = args::option(b"IFNE");
        const IFDEQ: u64 = args::option(b"IFDEQ");
        const IFDNE: u64 = args::option(b"IFDNE");
        match option {
            IFEQ => Some(Self::Equal),
            IFNE => Some(Self::Unequal),
            IFDEQ => Some(Self::DigestEqual),
            IFDNE => Some(Self::DigestUnequal),
            _ => None,
        }
    }

    /// The condition, if a digest in it is as long as every digest is.
    fn checked(self) -> Result<Self, Refusal> {
        match self {
            Self::DigestEqual(digest) | Self::DigestUnequal(digest) if digest.len() != DIGEST_BYTES => {
                Err(Refusal::said("ERR must be exactly 16 hexadecimal characters"))
            }
            condition => Ok(condition),
        }
    }
}

/// Length of a digest as text.
const DIGEST_BYTES: usize = 16;

fn digest_of(value: &[u8]) -> String {
    format!("{:0DIGEST_BYTES$x}", XxHash3_64::oneshot(value))
}

/// Whether this is the digest of a value, in any letter case.
fn has_digest(value: &[u8], digest: &[u8]) -> bool {
    digest_of(value).as_bytes().eq_ignore_ascii_case(digest)
}

fn digest(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    match call.view.read(name) {
        Some(found) => call.reply.bulk(digest_of(found.string()?).as_bytes()),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn delex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let condition = match call.args.len() {
        0 => None,
        2 => Some((call.args.option()?, call.args.word()?)),
        _ => return Err(Refusal::Arity("delex".into())),
    };

    let is_deleted = delete_if(call, name, |found| {
        // As in Redis, words are checked last: not for a key that does not exist, nor for one that is no string.
        let Some((word, value)) = condition else { return Ok(Some(EndReason::Deleted)) };
        let not_a_string = "ERR Key should be of string type if conditions are specified";
        let string = found.string().map_err(|_| Refusal::said(not_a_string))?;
        let unknown = || Refusal::said("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
        let condition = Condition::comparison(word).ok_or_else(unknown)?(value).checked()?;
        Ok(condition.holds(Some(string)).then_some(condition.end_reason()))
    })?;
    if !is_deleted {
        match condition.map(|(word, value)| Condition::comparison(word).map(|compare| compare(value))) {
            None | Some(Some(Condition::DigestEqual(_))) => release_is_late(call, name, None),
            Some(Some(Condition::Equal(value))) => release_is_late(call, name, Some(value)),
            Some(_) => {}
        }
    }

    call.reply.integer(i64::from(is_deleted));
    Ok(Outcome::Replied)
}

fn delifeq(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;

    let decide = |found: &Occupied<'_>| Ok((found.string()? == value).then_some(EndReason::Released));
    let is_deleted = delete_if(call, name, decide)?;
    if !is_deleted {
        release_is_late(call, name, Some(value));
    }

    call.reply.integer(i64::from(is_deleted));
    Ok(Outcome::Replied)
}

/// A release was to end the lock that the key is, if it has this value: that lock has ended, or another client holds it.
fn release_is_late(call: &mut Call<'_, '_>, name: &[u8], value: Option<&[u8]>) {
    call.comes_to(RequestOutcome::NotHeld(HolderRequest::Release), name, value);
}

/// Deletes a key that exists, if `decide` says so, and for which reason a lock ends by that. Returns whether it did.
fn delete_if(
    call: &mut Call<'_, '_>,
    name: &[u8],
    decide: impl FnOnce(&Occupied<'_>) -> Result<Option<EndReason>, Refusal>,
) -> Result<bool, Refusal> {
    let Some(mut found) = call.view.entry(name).occupied() else { return Ok(false) };
    let Some(reason) = decide(&found)? else { return Ok(false) };
    found.event(b'g', "del");
    found.remove_for(reason);
    Ok(true)
}
