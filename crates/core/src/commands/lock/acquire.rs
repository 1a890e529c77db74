//! LOCK.ACQUIRE and LOCK.MACQUIRE.
//!
//! Rule    a request inside a transaction never waits.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::lock::{KEYS_MAX, META_BYTES_MAX, META_FIELDS_MAX, PERMITS_MAX, PRIORITY_MAX};
use redlatch_proto::resp::Reply;
use tracing::Level;

use super::reader::Reader;
use super::replies::ReplyForm;
use super::wait::{Sought, Waiting, words};
use super::{LEASE, millis_of, owner_of, session};
use crate::commands::row::{Arg, block, integer, key, key_count, one_of, text, token};
use crate::commands::{Args, Call, Outcome, quarantine};
use crate::keyspace::{Waiter, attempt, attempt_several};
use crate::locks::{Attempt, Granted, LockRequest, Mode, Priority, RefusedBy, RequestOutcome, Several, Term};
use crate::state::settings;
use crate::state::wait::{Place, WaitFor};
use crate::types::lock::LockKind;

/// The arguments of LOCK.ACQUIRE.
pub(super) const ARGS: &[Arg] = &[
    key("key"),
    text("owner"),
    TERM.maybe(),
    WAIT.maybe(),
    WHY.maybe(),
    JUST_TOKEN.maybe(),
    PRIORITY.maybe(),
    KIND.maybe(),
    META.maybe(),
];
/// Those of LOCK.MACQUIRE.
pub(super) const ARGS_OF_SEVERAL: &[Arg] = &[
    key_count(),
    key("key").many(),
    text("owner"),
    TERM.maybe(),
    WAIT.maybe(),
    WHY.maybe(),
    JUST_TOKEN.maybe(),
    PRIORITY.maybe(),
    ANY.maybe(),
    MODE.maybe().many(),
];

const ANY: Arg = integer("count").after("ANY");
const MODE: Arg = block("mode", &[integer("position").after("MODE"), MODE_KIND]);
const SESSION: Arg =
    block("session", &[token("session", "SESSION"), integer("milliseconds").after("DELAY").maybe()]);
const TERM: Arg = one_of("term", &[LEASE, SESSION]);
const WAIT: Arg = integer("wait-milliseconds").after("WAIT");
const PRIORITY: Arg = integer("priority").after("PRIORITY");
const WHY: Arg = token("why", "WHY");
const JUST_TOKEN: Arg = token("just-token", "JUSTTOKEN");
const PERMITS: Arg = block("permits", &[integer("permits").after("PERMITS"), integer("limit").after("OF")]);
const SHARED: Arg = token("shared", "SHARED");
const KIND: Arg = one_of("kind", &[SHARED, PERMITS, token("reentrant", "REENTRANT")]);
const MODE_KIND: Arg = one_of("kind", &[SHARED, PERMITS]);
const META: Arg =
    block("meta", &[token("meta", "META"), block("data", &[text("field"), text("value")]).many()]);

/// The options of a request.
#[derive(Debug)]
struct Options {
    term: TermOption,
    wait_ms: Option<u64>,
    priority: Option<u8>,
    form: ReplyForm,
    mode: Mode,
    meta: Box<[Bytes]>,
}

#[derive(Clone, Copy, Debug)]
enum TermOption {
    Absent,
    Lease(u64),
    Session { delay_ms: Option<u64> },
}

impl Default for Options {
    fn default() -> Self {
        let (term, mode) = (TermOption::Absent, Mode::EXCLUSIVE);
        let form = ReplyForm::default();
        Self { term, wait_ms: None, priority: None, form, mode, meta: Box::default() }
    }
}

/// Reads LEASE, SESSION, WAIT, WHY, JUSTTOKEN and PRIORITY. Returns false if the next word is another option.
fn take_term(args: &mut Args<'_>, options: &mut Options) -> Result<bool, Refusal> {
    let has_term = !matches!(options.term, TermOption::Absent);
    if args.take("LEASE") && !has_term {
        options.term = TermOption::Lease(millis_of(args.integer()?, 1, "lease")?);
    } else if args.take("SESSION") && !has_term {
        let delay_ms = match args.take("DELAY") {
            true => Some(millis_of(args.integer()?, 0, "delay")?),
            false => None,
        };
        options.term = TermOption::Session { delay_ms };
    } else if options.wait_ms.is_none() && args.take("WAIT") {
        options.wait_ms = Some(millis_of(args.integer()?, 0, "wait")?);
    } else if !options.form.says_why && args.take("WHY") {
        options.form.says_why = true;
    } else if !options.form.is_just_token && args.take("JUSTTOKEN") {
        options.form.is_just_token = true;
    } else if options.priority.is_none() && args.take("PRIORITY") {
        options.priority = Some(level_of(args.integer()?)?);
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// PRIORITY, as a number that is in range.
fn level_of(level: i64) -> Result<u8, Refusal> {
    let level = u8::try_from(level).ok().filter(|level| *level <= PRIORITY_MAX);
    let range = || format!("ERR priority must be a whole number from 0 to {PRIORITY_MAX}");
    level.ok_or_else(|| Refusal::said(range()))
}

/// Reads SHARED, PERMITS and REENTRANT. Returns false if the next word is another option.
fn take_kind(args: &mut Args<'_>, options: &mut Options) -> Result<bool, Refusal> {
    if options.mode != Mode::EXCLUSIVE {
        return Ok(false);
    }
    if args.take("REENTRANT") {
        options.mode.kind = LockKind::Reentrant;
        return Ok(true);
    }
    let mode = take_mode(args)?;
    options.mode = mode.unwrap_or(Mode::EXCLUSIVE);
    Ok(mode.is_some())
}

/// Reads SHARED or PERMITS.
fn take_mode(args: &mut Args<'_>) -> Result<Option<Mode>, Refusal> {
    if args.take("SHARED") {
        return Ok(Some(Mode { kind: LockKind::Shared, permits: 1 }));
    }
    if args.take("PERMITS") {
        let permits = args.integer()?;
        if !args.take("OF") {
            return Err(Refusal::Syntax);
        }
        let limit = args.integer()?;
        let number =
            |number: i64| u32::try_from(number).ok().filter(|number| (1..=PERMITS_MAX).contains(number));
        let (Some(permits), Some(limit)) = (number(permits), number(limit)) else {
            return Err(Refusal::said(format!("ERR permits must be whole numbers from 1 to {PERMITS_MAX}")));
        };
        if permits > limit {
            return Err(Refusal::said("ERR more permits than the limit"));
        }
        return Ok(Some(Mode { kind: LockKind::Permits(limit), permits }));
    }
    Ok(None)
}

/// Reads ANY and MODE of a request for `count` locks. Returns false if the next word is another option.
fn take_several(args: &mut Args<'_>, count: usize, several: &mut Several) -> Result<bool, Refusal> {
    let number = |number: i64, option: &str| {
        let number = usize::try_from(number).ok().filter(|number| (1..=count).contains(number));
        number.ok_or_else(|| Refusal::said(format!("ERR {option} is not between 1 and the number of keys")))
    };
    if several.any.is_none() && args.take("ANY") {
        several.any = Some(number(args.integer()?, "ANY")?);
        return Ok(true);
    }
    if !args.take("MODE") {
        return Ok(false);
    }
    let at = number(args.integer()?, "MODE")?.saturating_sub(1);
    if several.modes.is_empty() {
        several.modes = vec![Mode::EXCLUSIVE; count].into();
    }
    if several.modes[at] != Mode::EXCLUSIVE {
        return Err(Refusal::said("ERR a key has two modes"));
    }
    several.modes[at] = take_mode(args)?.ok_or(Refusal::Syntax)?;
    Ok(true)
}

/// Reads META and all words after it.
fn take_meta(args: &mut Args<'_>, options: &mut Options) -> Result<(), Refusal> {
    if !args.take("META") || args.is_empty() || !args.len().is_multiple_of(2) {
        return Err(Refusal::Syntax);
    }
    let words = args.rest();
    options.meta = words.map(Bytes::copy_from_slice).collect();
    if options.meta.len() / 2 > META_FIELDS_MAX {
        return Err(Refusal::said(format!("ERR meta has more than {META_FIELDS_MAX} fields")));
    }
    let names: BTreeSet<&Bytes> = options.meta.iter().step_by(2).collect();
    if names.len() < options.meta.len() / 2 {
        return Err(Refusal::said("ERR meta has two fields of one name"));
    }
    let bytes: usize = options.meta.iter().map(Bytes::len).sum();
    if bytes > META_BYTES_MAX {
        return Err(Refusal::said(format!("ERR meta is longer than {META_BYTES_MAX} bytes")));
    }
    Ok(())
}

pub(super) fn acquire(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let key = Bytes::copy_from_slice(call.args.word()?);
    let owner = Bytes::copy_from_slice(owner_of(call.args.word()?)?);
    let mut options = Options::default();
    while !call.args.is_empty() {
        if !take_term(&mut call.args, &mut options)? && !take_kind(&mut call.args, &mut options)? {
            take_meta(&mut call.args, &mut options)?;
        }
    }

    let (wait_ms, form) = (options.wait_ms.unwrap_or(0), options.form);
    let request = request(call, owner, options)?;
    let keys = vec![key];
    let attempted = match waits_for_end(call, wait_ms)? {
        true => Attempt::WAITS,
        false => attempt(call.view, &keys[0], &request, before_waiting(call, &request))?,
    };
    let Granted { token, is_new } = match attempted {
        Attempt::Granted(granted) => granted,
        Attempt::Refused { at, by } => return refuse(call, keys, request, (at, by), (wait_ms, form)),
    };
    let outcome = RequestOutcome::Granted { again: !is_new };
    call.all_come_to(outcome, words(&keys, 0), Some(&request.owner));
    session::hold(call.view, call.session.lock_session.as_deref(), &keys, &request, token);
    form.grant(&mut call.reply, token, request.term.lease_ms(), 0);
    Ok(Outcome::Replied)
}

pub(super) fn acquire_several(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut keys = keys_of(&mut call.args)?;
    let owner = Bytes::copy_from_slice(owner_of(call.args.word()?)?);
    let (mut options, mut several) = (Options::default(), Several::default());
    while !call.args.is_empty() {
        if !take_term(&mut call.args, &mut options)?
            && !take_several(&mut call.args, keys.len(), &mut several)?
        {
            return Err(Refusal::Syntax);
        }
    }
    let several = (several != Several::default()).then(|| Box::new(several));
    put_in_order(&mut keys, several.is_some())?;

    let (wait_ms, form) = (options.wait_ms.unwrap_or(0), options.form);
    let request = LockRequest { several, ..request(call, owner, options)? };
    let attempted = match waits_for_end(call, wait_ms)? {
        true => Attempt::WAITS,
        false => attempt_several(call.view, &keys, &request, before_waiting(call, &request))?,
    };
    let grants = match attempted {
        Attempt::Granted(grants) => grants,
        Attempt::Refused { at, by } => return refuse(call, keys, request, (at, by), (wait_ms, form)),
    };
    let first_new = grants.first_new();
    let outcome = RequestOutcome::Granted { again: first_new.is_none() };
    call.all_come_to(outcome, words(&grants.keys(&keys), first_new.unwrap_or(0)), Some(&request.owner));
    session::hold_grants(call.view, call.session.lock_session.as_deref(), &keys, &request, &grants);
    form.grants(&mut call.reply, &grants, request.term.lease_ms(), 0);
    Ok(Outcome::Replied)
}

/// Reads how many keys there are, and the keys.
fn keys_of(args: &mut Args<'_>) -> Result<Vec<Bytes>, Refusal> {
    let count = args.integer()?;
    let count = usize::try_from(count).ok().filter(|count| (1..args.len()).contains(count));
    let count = count.ok_or_else(|| Refusal::said("ERR numkeys does not fit the number of arguments"))?;
    if count > KEYS_MAX {
        return Err(Refusal::said(format!("ERR more than {KEYS_MAX} locks in one request")));
    }
    Ok(args.rest_to(count).map(Bytes::copy_from_slice).collect())
}

/// Names each key once. With ANY and MODE the order of the request counts, so no key may come twice.
fn put_in_order(keys: &mut Vec<Bytes>, keeps_order: bool) -> Result<(), Refusal> {
    if !keeps_order {
        keys.sort_unstable();
        keys.dedup();
        return Ok(());
    }
    let mut sorted: Vec<&Bytes> = keys.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Refusal::said("ERR a key is given twice, with ANY or MODE")),
        false => Ok(()),
    }
}

fn request(call: &mut Call<'_, '_>, owner: Bytes, options: Options) -> Result<LockRequest, Refusal> {
    let priority = priority(call, options.priority.unwrap_or(0))?;
    let settings = &call.shared.settings;
    let term = match options.term {
        TermOption::Absent => Term::Lease(settings.get(settings::LOCK_LEASE)),
        TermOption::Lease(millis) => Term::Lease(millis),
        TermOption::Session { delay_ms } => {
            let delay_ms = delay_ms.unwrap_or_else(|| settings.get(settings::LOCK_DELAY));
            Term::Session { id: session::own(call.session, call.shared).id, delay_ms }
        }
    };
    let Options { mode, meta, .. } = options;
    Ok(LockRequest { mode, owner, term, meta, client: call.session.client.id, priority, several: None })
}

/// What a priority gains.
///
/// # Errors
/// The user may not ask for so much.
fn priority(call: &Call<'_, '_>, level: u8) -> Result<Priority, Refusal> {
    if level == 0 {
        return Ok(Priority::default());
    }
    let settings = &call.shared.settings;
    let own = call.session.account.user().priority_max();
    let most = own.unwrap_or_else(|| settings.get(settings::LOCK_PRIORITY_MAX));
    if level > most {
        return Err(Refusal::said(format!("ERR priority is at most {most} for this user")));
    }
    let gain_ms = settings.get(settings::LOCK_PRIORITY_AGEING).saturating_mul(level.into());
    Ok(Priority { level, gain_ms })
}

/// The place of a request that has not waited: behind all waits whose place is not worse.
fn before_waiting(call: &Call<'_, '_>, request: &LockRequest) -> Place {
    Place::at(call.view.now().lock, request.priority.gain_ms, u64::MAX)
}

/// Whether the request waits for the end of the quarantine.
///
/// # Errors
/// There is a quarantine and the request does not wait, the journal cannot be written, or the server shuts down.
fn waits_for_end(call: &Call<'_, '_>, wait_ms: u64) -> Result<bool, Refusal> {
    let quarantine = &call.shared.locks.quarantine;
    if !quarantine.is_on() {
        return Ok(false);
    }
    let permission = quarantine::permission(call.shared, call.now.lock);
    let may_wait = wait_ms > 0 && !call.session.is_nested && !quarantine.refuses();
    if may_wait { Ok(permission.is_err()) } else { permission.map(|()| false) }
}

/// Answers a request that was not granted and may not wait; else it waits.
fn refuse(
    call: &mut Call<'_, '_>,
    keys: Vec<Bytes>,
    request: LockRequest,
    (at, by): (usize, RefusedBy),
    (wait_ms, form): (u64, ReplyForm),
) -> Result<Outcome, Refusal> {
    if wait_ms == 0 || call.session.is_nested {
        call.all_come_to(RequestOutcome::Refused(by), words(&keys, at), Some(&request.owner));
        form.refusal(call.view, &keys, &Reader::of(call.session), &mut call.reply);
        return Ok(Outcome::Replied);
    }
    let limit = call.shared.settings.get(settings::LOCK_WAITERS_MAX);
    if let Some(full) = keys.iter().position(|key| call.view.queues().lock_queue_len(key) >= limit) {
        let outcome = RequestOutcome::Refused(RefusedBy::QueueFull);
        call.all_come_to(outcome, words(&keys, full), Some(&request.owner));
        return Err(Refusal::said(format!(
            "ERR {limit} requests wait for this lock already (lock-waiters-max)"
        )));
    }
    Ok(park(call, keys, request, (wait_ms, form)))
}

fn park(
    call: &mut Call<'_, '_>,
    keys: Vec<Bytes>,
    request: LockRequest,
    (wait_ms, form): (u64, ReplyForm),
) -> Outcome {
    // The answer when a long call holds the shards at the end of the wait: then nobody can look who holds the lock.
    let mut answer = Vec::new();
    form.unseen(&mut Reply::new(&mut answer, call.reply.protocol()));
    let place =
        (call.view.queues().lock_place(&keys, &request.owner, request.priority.gain_ms), WaitFor::Locks);
    let since = call.now.lock;
    let until = Some(since + wait_ms);
    let wait = call.session.new_wait_for(place, call.view.database(), keys, until, answer);
    let serve = Waiting {
        client: Arc::clone(&call.session.client),
        quarantine: Arc::clone(&call.shared.locks.quarantine),
        session: call.session.lock_session.clone().filter(|_| request.term.session().is_some()),
        wait: Arc::clone(&wait),
        sought: Sought::by(&request, wait.keys.len()),
        request,
        form,
        since,
        granted: OnceLock::new(),
        is_reported: AtomicBool::new(false),
        is_traced: tracing::level_enabled!(Level::DEBUG),
    };
    serve.comes_to(call.view, RequestOutcome::Waits);
    let ledger = call.shared.keyspace.ledger();
    let waiter = Arc::new(Waiter::new(ledger, Arc::clone(&wait), Vec::new(), Box::new(serve)));
    call.shared.locks.waits.enter(&waiter);
    Outcome::Park { wait, waiter: Some(waiter) }
}
