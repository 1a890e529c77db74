//! What is true of locks: a model in which every change of a lock is written once.
//!
//! Owns    [`Model`]: keys, holds, and how holds have ended. What a view must show is derived from it in `views`.
//! Rule    a hold begins in [`Model::grant`], changes in [`Model::renew`], and ends in [`Model::end`].
//! Time    milliseconds since the start of a cell.

use std::collections::{BTreeMap, BTreeSet};

/// A connection of a cell.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Role {
    /// Holds the lock.
    Holder,
    /// Holds a part of the lock, if the kind has two holders.
    Second,
    /// Holds nothing.
    Other,
    /// Waits for the lock, in cells with a queue.
    Waiter,
    /// Has subscribed to the channels of all locks.
    Listener,
    /// Asks for the views.
    Watcher,
    /// No connection: an owner that has got a lock for which it did not wait.
    Nobody,
}

impl Role {
    pub(crate) const ALL: [Self; 6] =
        [Self::Holder, Self::Second, Self::Other, Self::Waiter, Self::Listener, Self::Watcher];

    /// The role of this letter, which begins a line of a way.
    pub(crate) fn of(letter: &str) -> Self {
        match letter {
            "h" => Self::Holder,
            "g" => Self::Second,
            "o" => Self::Other,
            "n" => Self::Waiter,
            "w" => Self::Watcher,
            _ => panic!("no connection is called {letter:?}"),
        }
    }

    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::Holder => "h",
            Self::Second => "g",
            Self::Other => "o",
            Self::Waiter => "n",
            Self::Listener => "s",
            Self::Watcher => "w",
            Self::Nobody => "?",
        }
    }
}

/// A key of a database.
pub(crate) type Place = (u16, String);

/// The value under which a lock is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// A string whose value is the owner.
    String,
    /// A hash of Redisson, whose field is the owner.
    Hash,
    /// A value of the type lock.
    Value,
}

/// Why a hold has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reason {
    Broken,
    Deleted,
    Expired,
    Flushed,
    Released,
    Session,
    Transferred,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Flushed => "flushed",
            Self::Released => "released",
            Self::Session => "session",
            Self::Transferred => "transferred",
        }
    }
}

/// What one owner holds of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) owner: String,
    pub(crate) by: Role,
    pub(crate) token: u64,
    pub(crate) since: u64,
    pub(crate) lease: Option<u64>,
    /// The last millisecond of the lease.
    pub(crate) until: Option<u64>,
    pub(crate) renewals: u32,
    pub(crate) permits: u32,
    pub(crate) is_native: bool,
    /// For how long it outlives its connection, if it belongs to a session.
    pub(crate) delay: Option<u64>,
    /// Field and value of its meta.
    pub(crate) meta: Option<&'static str>,
}

/// What is stored under a key.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    Lock {
        form: Form,
        kind: &'static str,
        limit: Option<u64>,
        holds: Vec<Hold>,
    },
    /// A value that is no lock.
    Plain {
        value: Option<String>,
        until: Option<u64>,
    },
}

impl Slot {
    pub(crate) fn holds(&self) -> &[Hold] {
        match self {
            Self::Lock { holds, .. } => holds,
            Self::Plain { .. } => &[],
        }
    }

    /// The last millisecond of the key.
    pub(crate) fn until(&self) -> Option<u64> {
        match self {
            Self::Lock { holds, .. } => {
                holds.iter().map(|hold| hold.until).collect::<Option<Vec<_>>>()?.into_iter().max()
            }
            Self::Plain { until, .. } => *until,
        }
    }
}

/// The outcome of a hold.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) place: Place,
    pub(crate) hold: Hold,
    pub(crate) reason: Reason,
    /// The connection whose call has ended it.
    pub(crate) by: Option<Role>,
    pub(crate) at: u64,
    /// Whether its holder and the channel are told.
    pub(crate) is_told: bool,
    /// What LOCK.BREAK gave as a reason.
    pub(crate) text: Option<&'static str>,
    /// Whether the client has ended it in a script or transaction, where it may have compared the value.
    pub(crate) is_nested: bool,
}

impl End {
    pub(crate) fn held_ms(&self) -> u64 {
        self.at - self.hold.since
    }
}

/// The answer to the last command of a way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Done,
    /// An error that contains this.
    Refused(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) now: u64,
    pub(crate) keys: BTreeMap<Place, Slot>,
    /// Places that a view looks at.
    pub(crate) watched: BTreeSet<Place>,
    pub(crate) ends: Vec<End>,
    /// Grants by kind.
    pub(crate) granted: BTreeMap<&'static str, u64>,
    pub(crate) tokens: u64,
    /// Events of TEST.HISTORY: `granted 1 a`, with their places.
    pub(crate) events: Vec<(Place, String)>,
    pub(crate) closed: BTreeSet<Role>,
    /// A connection of [`Role::Waiter`] waits for an exclusive lock of this place.
    pub(crate) waits_for: Option<Place>,
    pub(crate) answer: Answer,
    /// How often [`Role::Other`] was refused the lock of `k`, and when at last.
    pub(crate) polls: Option<(u64, u64)>,
    pub(crate) is_linted: bool,
    /// Whether the process was started anew: what is in memory only is gone.
    pub(crate) is_restarted: bool,
}

/// For how long a client that has asked every 50 ms counts as one that polls.
const POLLING_MS: u64 = 200;
/// The lease of the call that waits.
pub(crate) const WAITER_LEASE: u64 = 600_000;

pub(crate) fn place(key: &str) -> Place {
    (0, key.to_owned())
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            keys: BTreeMap::new(),
            watched: BTreeSet::from([place("k")]),
            ends: Vec::new(),
            granted: BTreeMap::new(),
            tokens: 0,
            events: Vec::new(),
            closed: BTreeSet::from([Role::Nobody]),
            waits_for: None,
            answer: Answer::Done,
            polls: None,
            is_linted: false,
            is_restarted: false,
        }
    }

    pub(crate) fn form(&self) -> Form {
        match self.keys.get(&place("k")) {
            Some(Slot::Lock { form, .. }) => *form,
            other => panic!("k is no lock: {other:?}"),
        }
    }

    pub(crate) fn is_of_session(&self) -> bool {
        self.keys[&place("k")].holds().iter().any(|hold| hold.delay.is_some())
    }

    /// The lease belongs to the holders, or to a session: commands on keys do not change it.
    fn has_own_lease(&self) -> bool {
        self.form() == Form::Value || self.is_of_session()
    }

    /// A new hold.
    pub(crate) fn grant(
        &mut self,
        at: &Place,
        form: Form,
        (kind, limit): (&'static str, Option<u64>),
        hold: Hold,
    ) {
        *self.granted.entry(kind).or_default() += 1;
        self.tokens = self.tokens.max(hold.token);
        self.note(at, "granted", &hold);
        let empty = Slot::Lock { form, kind, limit, holds: Vec::new() };
        if let Slot::Lock { holds, .. } = self.keys.entry(at.clone()).or_insert(empty) {
            holds.push(hold);
        }
        self.watched.insert(at.clone());
    }

    /// A lease of a hold begins anew; `None`: it has none from now on. The first lease of a lock that had none is no renewal.
    pub(crate) fn renew(&mut self, at: &Place, owner: &str, lease: Option<u64>) {
        let now = self.now;
        let Some(Slot::Lock { holds, .. }) = self.keys.get_mut(at) else { panic!("{at:?} is no lock") };
        let hold = holds.iter_mut().find(|hold| hold.owner == owner).expect("a holder");
        if hold.lease.is_none() && lease.is_none() {
            return;
        }
        hold.renewals += u32::from(hold.lease.is_some());
        (hold.lease, hold.until) = (lease, lease.map(|lease| now + lease));
        let hold = hold.clone();
        self.note(at, "renewed", &hold);
    }

    /// Ends a hold at this time. The key goes with its last hold.
    fn end(&mut self, at: &Place, owner: &str, (reason, by, ended): (Reason, Option<Role>, u64)) {
        let Some(Slot::Lock { holds, .. }) = self.keys.get_mut(at) else { panic!("{at:?} is no lock") };
        let index = holds.iter().position(|hold| hold.owner == owner).expect("a holder");
        let hold = holds.remove(index);
        if holds.is_empty() {
            self.keys.remove(at);
        }
        // The holder that deletes its own lock releases it.
        let is_own = reason == Reason::Deleted && by == Some(hold.by);
        let reason = if is_own { Reason::Released } else { reason };
        let is_told = hold.is_native && reason != Reason::Released;
        self.note(at, if reason == Reason::Expired { "expired" } else { "released" }, &hold);
        self.ends.push(End {
            place: at.clone(),
            hold,
            reason,
            by,
            at: ended,
            is_told,
            text: None,
            is_nested: false,
        });
    }

    fn note(&mut self, at: &Place, what: &str, hold: &Hold) {
        self.events.push((at.clone(), format!("{what} {} {}", hold.token, hold.owner)));
    }

    /// The owners of a lock.
    fn owners(&self, at: &Place) -> Vec<String> {
        self.keys.get(at).map_or(&[][..], Slot::holds).iter().map(|hold| hold.owner.clone()).collect()
    }

    /// The call that waits has the lock, if the key is free. `at`: since when.
    pub(crate) fn serve(&mut self, since: u64) {
        let Some(at) = self.waits_for.clone().filter(|at| !self.keys.contains_key(at)) else { return };
        self.waits_for = None;
        let hold = Hold {
            owner: "next".to_owned(),
            by: Role::Waiter,
            token: self.tokens + 1,
            since,
            lease: Some(WAITER_LEASE),
            until: Some(since + WAITER_LEASE),
            renewals: 0,
            permits: 1,
            is_native: true,
            delay: None,
            meta: None,
        };
        self.grant(&at, Form::String, ("exclusive", None), hold);
    }

    /// Every hold of a key ends now.
    fn end_all(&mut self, at: &Place, reason: Reason, by: Role) {
        for owner in self.owners(at) {
            self.end(at, &owner, (reason, Some(by), self.now));
        }
    }
}

/// The ways in which clients change locks.
impl Model {
    /// One owner gives its lock back, or one hold of several.
    pub(crate) fn release(&mut self, by: Role) {
        let at = place("k");
        let Some(Slot::Lock { kind, holds, .. }) = self.keys.get_mut(&at) else { panic!("k is no lock") };
        if *kind == "reentrant" && holds[0].permits > 1 {
            holds[0].permits -= 1;
            return;
        }
        self.end(&at, "a", (Reason::Released, Some(by), self.now));
        self.serve(self.now);
    }

    pub(crate) fn break_lock(&mut self, by: Role, text: &'static str) {
        self.end(&place("k"), "a", (Reason::Broken, Some(by), self.now));
        self.ends.last_mut().expect("it has ended").text = Some(text);
        self.serve(self.now);
    }

    /// The owner hands the lock over: to the call that waits, or for a lease to an owner without a connection.
    pub(crate) fn transfer(&mut self, by: Role, to: &str, lease: u64) {
        let at = place("k");
        let Some(Slot::Lock { form, kind, limit, holds }) = self.keys.get(&at).cloned() else {
            panic!("k is no lock")
        };
        if form == Form::Hash {
            self.answer = Answer::Refused("NOTHELD");
            return;
        }
        let (is_sole, permits) = (holds.len() == 1, if kind == "permits" { holds[0].permits } else { 1 });
        self.end(&at, "a", (Reason::Transferred, Some(by), self.now));
        if to == "next" && self.waits_for.is_some() {
            if is_sole {
                return self.serve(self.now);
            }
            // Its request for the whole lock ends with an error, because it has a part of the lock now.
            self.waits_for = None;
        }
        let hold = Hold {
            owner: to.to_owned(),
            by: Role::Nobody,
            token: self.tokens + 1,
            since: self.now,
            lease: Some(lease),
            until: Some(self.now + lease),
            renewals: 0,
            permits,
            is_native: true,
            delay: None,
            meta: None,
        };
        self.grant(&at, form, (kind, limit), hold);
    }

    /// The key is deleted.
    pub(crate) fn delete(&mut self, by: Role) {
        self.end_all(&place("k"), Reason::Deleted, by);
        self.serve(self.now);
    }

    /// A script or transaction deletes the key.
    pub(crate) fn delete_nested(&mut self, by: Role) {
        self.end_all(&place("k"), Reason::Deleted, by);
        self.ends.iter_mut().for_each(|end| end.is_nested = true);
        self.serve(self.now);
    }

    /// A script whose purpose is to free a lock that others hold deletes the key.
    pub(crate) fn force(&mut self, by: Role) {
        self.end_all(&place("k"), Reason::Broken, by);
        self.serve(self.now);
    }

    /// The value is replaced by one that is no lock.
    pub(crate) fn overwrite(&mut self, by: Role, value: Option<&str>) {
        self.end_all(&place("k"), Reason::Deleted, by);
        self.put(&place("k"), value, None);
    }

    /// A key that is no lock.
    pub(crate) fn put(&mut self, at: &Place, value: Option<&str>, until: Option<u64>) {
        self.keys.insert(at.clone(), Slot::Plain { value: value.map(str::to_owned), until });
        self.watched.insert(at.clone());
    }

    /// The key goes to another place, where it is no lock.
    pub(crate) fn move_away(&mut self, by: Role, to: &Place) {
        if self.form() == Form::Value {
            self.answer = Answer::Refused("LOCK.");
            return;
        }
        let until = self.keys[&place("k")].until();
        let value = (self.form() == Form::String).then_some("a");
        self.end_all(&place("k"), Reason::Deleted, by);
        self.put(to, value, until);
        self.serve(self.now);
    }

    /// A copy is no lock.
    pub(crate) fn copy(&mut self, to: &Place) {
        if self.form() == Form::Value {
            self.answer = Answer::Refused("LOCK.");
            return;
        }
        let value = (self.form() == Form::String).then_some("a");
        self.put(to, value, self.keys[&place("k")].until());
    }

    /// A command for strings: another value is refused.
    pub(crate) fn if_string(&mut self, act: impl FnOnce(&mut Self)) {
        match self.form() {
            Form::String => act(self),
            Form::Hash | Form::Value => self.answer = Answer::Refused("WRONGTYPE"),
        }
    }

    /// The lease of the key.
    pub(crate) fn set_lease(&mut self, lease: Option<u64>) {
        if self.has_own_lease() {
            self.answer = Answer::Refused("LOCK.");
            return;
        }
        for owner in self.owners(&place("k")) {
            self.renew(&place("k"), &owner, lease);
        }
    }

    /// The owner asks for the lock that it has: its lease begins anew. A reentrant lock is held once more. A native lock
    /// belongs to the connection that has asked last.
    pub(crate) fn take_again(&mut self, by: Role, lease: u64) {
        let places: Vec<Place> = self.keys.keys().cloned().collect();
        for at in places {
            let Some(Slot::Lock { kind, holds, .. }) = self.keys.get_mut(&at) else { continue };
            let hold = &mut holds[0];
            if !hold.is_native && *kind == "exclusive" {
                continue;
            }
            hold.permits += u32::from(*kind == "reentrant");
            hold.by = if hold.is_native { by } else { hold.by };
            let lease = hold.delay.is_none().then_some(lease);
            self.renew(&at, "a", lease);
        }
    }

    /// The owner takes the lock together with another key: it gives the lock back, and has a new one.
    pub(crate) fn take_with(&mut self, by: Role, other: &str, lease: u64) {
        let token = self.tokens + 1;
        self.end(&place("k"), "a", (Reason::Released, Some(by), self.now));
        for key in ["k", other] {
            let hold = Hold {
                owner: "a".to_owned(),
                by,
                token,
                since: self.now,
                lease: Some(lease),
                until: Some(self.now + lease),
                renewals: 0,
                permits: 1,
                is_native: true,
                delay: None,
                meta: None,
            };
            self.grant(&place(key), Form::String, ("exclusive", None), hold);
        }
    }

    /// A client asks so often, in such steps, and is refused.
    pub(crate) fn poll(&mut self, step_ms: u64, times: u64) {
        self.pass(step_ms * (times - 1));
        self.polls = Some((times, self.now));
    }

    /// How often a client that polls the lock was refused.
    pub(crate) fn polled(&self, at: &Place) -> Option<u64> {
        let is_held = !self.keys.get(at).map_or(&[][..], Slot::holds).is_empty();
        let (times, last) = self.polls.filter(|_| is_held && *at == place("k"))?;
        (self.now - last < POLLING_MS).then_some(times)
    }

    /// A lease that has ended already: the client deletes the key.
    pub(crate) fn end_lease(&mut self, by: Role) {
        if self.has_own_lease() {
            self.answer = Answer::Refused("LOCK.");
            return;
        }
        self.delete(by);
    }

    /// Every key of these databases is removed.
    pub(crate) fn flush(&mut self, databases: &[u16], by: Role) {
        let places: Vec<Place> =
            self.keys.keys().filter(|(database, _)| databases.contains(database)).cloned().collect();
        for at in places {
            self.end_all(&at, Reason::Flushed, by);
            self.keys.remove(&at);
        }
        self.serve(self.now);
    }

    /// The databases 0 and 1 change places.
    pub(crate) fn swap(&mut self) {
        let other = |database: u16| if database < 2 { 1 - database } else { database };
        let keys = std::mem::take(&mut self.keys);
        self.keys = keys.into_iter().map(|((database, key), slot)| ((other(database), key), slot)).collect();
        self.watched.extend(self.keys.keys().cloned());
        self.serve(self.now);
    }

    /// Time passes; what is due ends.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now + millis;
        while let Some((due, at, owner)) = self.due().filter(|(due, ..)| *due < end) {
            self.now = due + 1;
            match owner {
                // A lock of a session whose connection is gone has a deadline, and no lease.
                Some((owner, is_of_session)) => {
                    let reason = if is_of_session { Reason::Session } else { Reason::Expired };
                    self.end(&at, &owner, (reason, None, due));
                }
                None => drop(self.keys.remove(&at)),
            }
            self.serve(self.now);
        }
        self.now = end;
    }

    /// What ends next: when, where, and which owner.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    fn due(&self) -> Option<(u64, Place, Option<(String, bool)>)> {
        let all = self.keys.iter().flat_map(|(at, slot)| match slot {
            Slot::Plain { until, .. } => vec![until.map(|until| (until, at.clone(), None))],
            Slot::Lock { holds, .. } => {
                let due = |hold: &Hold| {
                    let owner = Some((hold.owner.clone(), hold.delay.is_some()));
                    hold.until.map(|until| (until, at.clone(), owner))
                };
                holds.iter().map(due).collect()
            }
        });
        all.flatten().min()
    }

    /// The latest moment at which something ends.
    pub(crate) fn last_due(&self) -> Option<u64> {
        self.keys
            .values()
            .flat_map(|slot| slot.holds().iter().map(|hold| hold.until).chain([slot.until()]))
            .flatten()
            .max()
    }

    /// A connection ends, and with it its locks of sessions, at once or after their delay.
    pub(crate) fn close(&mut self, role: Role) {
        self.closed.insert(role);
        for at in self.keys.keys().cloned().collect::<Vec<_>>() {
            for owner in self.owners(&at) {
                self.end_session(&at, &owner, |hold| hold.by == role);
            }
        }
        self.serve(self.now);
    }

    fn end_session(&mut self, at: &Place, owner: &str, is_meant: impl Fn(&Hold) -> bool) {
        let Some(Slot::Lock { holds, .. }) = self.keys.get_mut(at) else { return };
        let hold = holds.iter_mut().find(|hold| hold.owner == owner).expect("a holder");
        match hold.delay.filter(|_| is_meant(hold)) {
            None => {}
            Some(0) => self.end(at, owner, (Reason::Session, None, self.now)),
            Some(delay) => hold.until = Some(self.now + delay),
        }
    }

    /// Another connection has attached to the session of a closed one.
    pub(crate) fn attach(&mut self, by: Role) {
        if !self.keys.contains_key(&place("k")) || !self.is_of_session() {
            self.answer = Answer::Refused("no such session");
            return;
        }
        for slot in self.keys.values_mut() {
            let Slot::Lock { holds, .. } = slot else { continue };
            for hold in holds.iter_mut().filter(|hold| hold.delay.is_some()) {
                (hold.by, hold.until) = (by, None);
            }
        }
    }

    /// The process dies; another one goes on from the journal. Every connection and every memory of the past is gone.
    pub(crate) fn crash(&mut self) {
        self.closed.extend([Role::Holder, Role::Second, Role::Waiter]);
        self.waits_for = None;
        self.is_restarted = true;
        self.ends.clear();
        self.events.clear();
        self.granted.clear();
        for at in self.keys.keys().cloned().collect::<Vec<_>>() {
            for owner in self.owners(&at) {
                let Some(Slot::Lock { holds, .. }) = self.keys.get_mut(&at) else { continue };
                let hold = holds.iter_mut().find(|hold| hold.owner == owner).expect("a holder");
                hold.until = hold.delay.map(|delay| self.now + delay).or(hold.until);
            }
        }
    }
}
