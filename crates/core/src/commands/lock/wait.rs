//! Lock requests that wait.
//!
//! Rule    a request is answered by the write that makes its lock free, with the shards of all its keys locked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::log_name::readable;
use redlatch_proto::resp::Reply;

use super::reader::Reader;
use super::replies::ReplyForm;
use super::{session, watch};
use crate::commands::Shared;
use crate::keyspace::{
    Asked, Asker, AskingClient, Circle, Hold, LockWaits, Serve, View, Waiter, attempt, attempt_several,
    first_held, is_grantable,
};
use crate::locks::{
    Attempt, EndReason, Granted, Grants, LockRequest, Mode, RefusedBy, RequestOutcome, RequestWait,
};
use crate::state::clients::Client;
use crate::state::lock_sessions::LockSession;
use crate::state::quarantine::Quarantine;
use crate::state::settings;
use crate::state::wait::{Place, Wait, WaitEnd};
use crate::sync::Mutex;
use crate::types::heap;
use crate::types::lock::words_bytes;

/// The name of a request that has waited: only late requests are named.
const WAITING: &str = "LOCK.ACQUIRE";
/// Room for the answer to a request that is granted.
const GRANT_BYTES: usize = 96;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: Arc<Client>,
    /// The session that the grant will belong to.
    pub(super) session: Option<Arc<LockSession>>,
    pub(super) wait: Arc<Wait>,
    /// In which nothing is granted.
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) request: LockRequest,
    pub(super) form: ReplyForm,
    pub(super) sought: Sought,
    pub(super) since: LockTime,
    /// The grant, once that is its answer.
    pub(super) granted: OnceLock<Grants>,
    /// Whether the log says that it has waited for long.
    pub(super) is_reported: AtomicBool,
    /// Whether the beginning of the wait was shown to those who make spans.
    pub(super) is_traced: bool,
}

/// What keeps a request waiting.
#[derive(Debug)]
pub(super) enum Sought {
    /// It needs all its locks. One of them was found to be held last.
    All { held_at: AtomicUsize },
    /// It needs fewer locks than it names: ANY.
    Any {
        count: usize,
        /// Fewer than it needs, which it may have; `None`: not known yet.
        found: Box<Mutex<Option<BTreeMap<Bytes, Mode>>>>,
    },
}

impl Sought {
    /// What a request for `keys` locks needs.
    pub(super) fn by(request: &LockRequest, keys: usize) -> Self {
        match request.any() {
            Some(count) if count < keys => Self::Any { count, found: Box::default() },
            _ => Self::All { held_at: AtomicUsize::new(0) },
        }
    }
}

impl Serve for Waiting {
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool {
        if self.session_has_ended() {
            return true;
        }
        if self.quarantine.forbids_grants(view.now().lock) {
            return false;
        }
        match &self.sought {
            Sought::All { held_at } => {
                let from = held_at.load(Relaxed);
                let held = first_held(view, &self.wait.keys, &self.request, self.wait.place, from);
                held_at.store(held.unwrap_or(from), Relaxed);
                held.is_none()
            }
            Sought::Any { count, found } => self.has_found(view, key, *count, &mut found.lock()),
        }
    }

    fn serve(&self, view: &mut View<'_>, _key: &[u8]) {
        let granted = match self.session_has_ended() {
            true => Err(session::no_such()),
            false => self.attempt(view, self.wait.place),
        };
        self.answer(view, granted);
    }

    fn takes_over(&self) -> bool {
        self.wait.keys.len() == 1 && !self.session_has_ended()
    }

    // If its session ends meanwhile, the lock ends with it.
    fn take_over(&self, view: &mut View<'_>) {
        let granted = self.attempt(view, Place::FIRST);
        self.answer(view, granted);
    }

    fn end_unserved(&self, view: &mut View<'_>, how: WaitEnd) -> Option<Vec<u8>> {
        let outcome = match how {
            // Only a circle is answered without the locks of the shards.
            WaitEnd::Answered => RequestOutcome::Refused(RefusedBy::Deadlock),
            WaitEnd::Disconnected => RequestOutcome::Abandoned,
            WaitEnd::TimedOut => RequestOutcome::TimedOut,
            WaitEnd::Unblocked => RequestOutcome::Unblocked,
        };
        self.comes_to(view, outcome);
        if how == WaitEnd::Disconnected {
            return None;
        }
        let mut answer = Vec::new();
        let mut reply = Reply::new(&mut answer, self.client.protocol());
        self.form.refusal(view, &self.wait.keys, &self.reader(), &mut reply);
        Some(answer)
    }

    fn give_back(&self, view: &mut View<'_>) {
        let LockRequest { owner, client, .. } = &self.request;
        let mut give_back = |key: &[u8], granted: &Granted| {
            // Another connection of the owner may have asked for the lock since, and know of it.
            let is_unread = |hold: &Hold| hold.token == granted.token && hold.client == *client;
            if granted.is_new {
                view.locks().end_hold(key, owner, EndReason::Released, is_unread);
            }
        };
        match self.granted.get() {
            None => {}
            Some(Grants::All(granted)) => self.wait.keys.iter().for_each(|key| give_back(key, granted)),
            Some(Grants::Some(some)) => some.iter().for_each(|(key, granted)| give_back(key, granted)),
        }
    }

    fn report(&self) {
        self.is_reported.store(true, Relaxed);
    }

    fn asker(&self) -> Option<Asker<'_>> {
        let Self { request, client, since, .. } = self;
        Some(Asker { owner: &request.owner, request, client, since: *since })
    }

    fn heap_bytes(&self) -> usize {
        let LockRequest { owner, meta, several, .. } = &self.request;
        let found = self.request.any().map_or(0, heap::tree::<(Bytes, Mode)>);
        let modes = several.as_ref().map_or(0, |several| size_of_val(&*several.modes));
        let several = several.as_ref().map_or(0, |several| size_of_val(&**several));
        let parts =
            [heap::shared(owner), words_bytes(meta), several, modes, found, LockWaits::BYTES_PER_WAIT];
        parts.into_iter().fold(0, usize::saturating_add)
    }
}

impl Waiting {
    /// The wait begins, or ends.
    pub(super) fn comes_to(&self, view: &mut View<'_>, outcome: RequestOutcome) {
        self.come_to(view, outcome, words(&self.wait.keys, 0));
    }

    fn come_to<'n>(
        &self,
        view: &mut View<'_>,
        outcome: RequestOutcome,
        keys: (&'n [u8], impl Iterator<Item = &'n [u8]> + Clone),
    ) {
        let (place, since, is_traced) = (self.wait.place, self.since, self.is_traced);
        let (priority, is_reported) = (self.request.priority.level, self.is_reported.load(Relaxed));
        let wait = Some(RequestWait { place, priority, since, is_reported, is_traced });
        let asked = Asked { owner: Some(&self.request.owner), name: WAITING, wait };
        view.locks().comes_to(outcome, keys, AskingClient { client: &self.client, warn_ms: 0 }, asked);
    }

    /// Takes what it can have at this place of the queues.
    fn attempt(&self, view: &mut View<'_>, place: Place) -> Result<Attempt<Grants>, Refusal> {
        let attempted = match &self.wait.keys[..] {
            [key] if self.request.several.is_none() => attempt(view, key, &self.request, place)?,
            keys => return attempt_several(view, keys, &self.request, place),
        };
        Ok(match attempted {
            Attempt::Granted(granted) => Attempt::Granted(Grants::All(granted)),
            Attempt::Refused { at, by } => Attempt::Refused { at, by },
        })
    }

    /// Answers what the request has come to.
    fn answer(&self, view: &mut View<'_>, granted: Result<Attempt<Grants>, Refusal>) {
        let keys = &self.wait.keys;
        let mut answer = Vec::with_capacity(GRANT_BYTES);
        let mut reply = Reply::new(&mut answer, self.client.protocol());
        match granted {
            Ok(Attempt::Granted(grants)) => {
                let waited_ms = view.now().lock.millis_since(self.since);
                self.form.grants(&mut reply, &grants, self.request.term.lease_ms(), waited_ms);
                session::hold_grants(view, self.session.as_deref(), keys, &self.request, &grants);
                let first_new = grants.first_new();
                let outcome = RequestOutcome::Granted { again: first_new.is_none() };
                self.come_to(view, outcome, words(&grants.keys(keys), first_new.unwrap_or(0)));
                self.granted.get_or_init(|| grants);
            }
            Ok(Attempt::Refused { by, .. }) => {
                self.comes_to(view, RequestOutcome::Refused(by));
                self.form.refusal(view, keys, &self.reader(), &mut reply);
            }
            Err(refusal) => {
                self.comes_to(view, RequestOutcome::Refused(RefusedBy::Error));
                reply.error_bytes(&refusal.line());
            }
        }
        view.answer(&self.client, answer);
    }

    fn reader(&self) -> Reader {
        Reader::of_client(&self.client)
    }

    /// Whether the request can be answered, after the lock of `key` may have become free: with an error, or because it has
    /// found `count` locks. All keys are looked at the first time. Later, only those that were found, once they are enough.
    fn has_found(
        &self,
        view: &mut View<'_>,
        key: &[u8],
        count: usize,
        found: &mut Option<BTreeMap<Bytes, Mode>>,
    ) -> bool {
        let mut may_have =
            |key: &[u8], mode: Mode| is_grantable(view, key, (&self.request.owner, mode), self.wait.place);
        let keys = &self.wait.keys;
        let mode = self.request.mode_of(keys, key);
        match may_have(key, mode) {
            Ok(true) => {}
            other => return other.is_err(),
        }
        let Some(found) = found else {
            let all = keys.iter().enumerate().map(|(at, key)| (key.clone(), self.request.mode_at(at)));
            let all = all.filter(|(key, mode)| may_have(key, *mode) == Ok(true));
            return found.insert(all.collect()).len() >= count;
        };
        let is_new = found.insert(Bytes::copy_from_slice(key), mode).is_none();
        if is_new && found.len() >= count {
            // Another command may have taken some of them.
            found.retain(|key, mode| may_have(key, *mode) == Ok(true));
        }
        is_new && found.len() >= count
    }

    /// Whether the connection has ended that has taken the session over meanwhile.
    fn session_has_ended(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.client().is_none())
    }
}

/// The key at a place, and all others.
pub(super) fn words(keys: &[Bytes], at: usize) -> (&[u8], impl Iterator<Item = &[u8]> + Clone) {
    let (before, from) = keys.split_at(at);
    let mut words = from.iter().chain(before).map(|key| &key[..]);
    (words.next().unwrap_or_default(), words)
}

/// Ends the youngest wait of a circle that this request has closed, if it has.
pub(crate) fn refuse_circle(shared: &Shared, waiter: &Arc<Waiter>) {
    let policy = shared.settings.get(settings::LOCK_DEADLOCK);
    if policy == "off" {
        return;
    }
    let at = (shared.clock.now(), shared.events());
    let circle = shared.locks.waits.circle(&shared.keyspace, &shared.registries, waiter, at);
    let Some(circle) = circle else { return };
    if policy == "warn" {
        watch::report_circle(shared, &describe(&circle, &Reader::UNLIMITED));
        return;
    }
    let Some(asker) = circle.youngest.serve.asker() else { return };
    if circle.youngest.wait.claim.take() {
        shared.stats.metrics.errors.add(1);
        shared.stats.metrics.error_codes.add("DEADLOCK");
        let text = describe(&circle, &Reader::of_client(asker.client));
        let mut answer = Vec::new();
        Reply::new(&mut answer, asker.client.protocol()).error(&format!("DEADLOCK {text}"));
        asker.client.answer(&answer);
    }
}

/// A lock that the reader may not see.
const UNSEEN: &str = "another lock";
/// Links of a circle in an error.
const LINKS_SHOWN: usize = 16;
/// Bytes of a key or an owner in an error.
const NAME_BYTES_SHOWN: usize = 128;

/// `a (held by X) -> b (held by Y) -> a`. A lock that the reader may not see has no name: `another lock`.
fn describe(circle: &Circle, reader: &Reader) -> String {
    let show = |bytes: &Bytes| {
        let more = if bytes.len() > NAME_BYTES_SHOWN { "..." } else { "" };
        readable(&bytes[..bytes.len().min(NAME_BYTES_SHOWN)]) + more
    };
    let links = circle.links.iter().take(LINKS_SHOWN).map(|(key, awaited)| {
        let how = if awaited.is_holder { "held" } else { "awaited" };
        if !reader.may_learn(key) {
            return format!("{UNSEEN} ({how}) -> ");
        }
        format!("{} ({how} by {}) -> ", show(key), show(&awaited.owner))
    });
    let left_out = circle.links.len().saturating_sub(LINKS_SHOWN);
    let more = if left_out > 0 { format!("{left_out} more -> ") } else { String::new() };
    let first = circle.links.first().map(|(key, _)| match reader.may_learn(key) {
        true => show(key),
        false => UNSEEN.to_owned(),
    });
    let first = first.unwrap_or_default();
    links.collect::<String>() + &more + &first
}
