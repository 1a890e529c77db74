//! The model of lock queues: the expected behaviour of LOCK commands in its simplest form.
//!
//! Owns    locks as lists of holders, one list of all requests that wait, and what every client is told.
//! Rule    it shares no code with the server. Every search is a scan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// `lock-priority-ageing`: less than requests wait, so that those of each priority overtake some of the others.
pub(super) const AGEING_MS: u64 = 7;

/// How a lock is shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Exclusive,
    Reentrant,
    Shared,
    Permits(u32),
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Reentrant => "reentrant",
            Self::Shared => "shared",
            Self::Permits(_) => "permits",
        }
    }
}

/// How long a grant lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Term {
    Lease(u64),
    Session { session: usize, delay_ms: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) owner: String,
    pub(super) token: u64,
    count: u32,
    /// The last millisecond of its lease.
    pub(super) until_ms: Option<u64>,
    session: Option<(usize, u64)>,
    /// The client that holds it, while that client is there.
    by: Option<usize>,
    is_native: bool,
}

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) enum Held {
    List,
    Lock(Kind, Vec<Holder>),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) who: usize,
    /// Each once: in the order of the request with ANY or MODE, otherwise sorted.
    pub(super) keys: Vec<String>,
    pub(super) owner: String,
    /// Kind and permits for each key.
    pub(super) modes: Vec<(Kind, u32)>,
    pub(super) any: Option<usize>,
    pub(super) priority: u64,
    pub(super) term: Term,
    pub(super) says_why: bool,
    pub(super) is_just_token: bool,
}

impl Request {
    /// What a request that comes at this time is ordered by.
    fn rank(&self, now_ms: u64) -> i64 {
        now_ms as i64 - (self.priority * AGEING_MS) as i64
    }

    /// Whether it needs fewer locks than it names.
    fn has_choice(&self) -> bool {
        self.any.is_some_and(|any| any < self.keys.len())
    }

    fn mode(&self, key: &str) -> (Kind, u32) {
        self.modes[self.keys.iter().position(|other| other == key).expect("a key of the request")]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) request: Request,
    pub(super) since_ms: u64,
    until_ms: u64,
}

/// What a client is told in one step.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Told {
    /// In order.
    pub(super) replies: Vec<String>,
    /// In no order.
    pub(super) pushes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) is_resp3: bool,
    pub(super) session: Option<usize>,
    /// It is about to end, and reads nothing more.
    pub(super) is_killed: bool,
    /// Locks of a grant that it has not read: key, owner and token of each.
    unread: Vec<(String, String, u64)>,
    pub(super) told: Told,
}

/// Why a lock has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    Broken,
    Deleted,
    Expired,
    Released,
    Session,
    Transferred,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now_ms: u64,
    pub(super) keys: BTreeMap<String, Held>,
    /// By rank; of the same rank, first come first.
    pub(super) waiters: Vec<Waiter>,
    pub(super) connections: Vec<Connection>,
    /// Messages to the channels of locks, in no order.
    pub(super) published: Vec<String>,
    /// The connection of each session.
    pub(super) sessions: Vec<Option<usize>>,
    pub(super) refuses_circles: bool,
    pub(super) last_token: u64,
}

/// How a key stands to a request.
enum Standing {
    Mine,
    Open,
    Busy,
}

impl Model {
    /// LOCK.ACQUIRE or LOCK.MACQUIRE.
    pub(super) fn acquire(&mut self, request: Request, wait_ms: u64) {
        let who = request.who;
        let refused = request.keys.iter().find_map(|key| self.standing(key, &request).err());
        if let Some(text) = refused {
            return self.reply(who, format!("-{text}\r\n"));
        }
        let rank = request.rank(self.now_ms);
        let at = self.waiters.partition_point(|other| other.request.rank(other.since_ms) <= rank);
        if self.is_ready(&request, at, None) {
            return self.grant(&request, at, 0);
        }
        if wait_ms == 0 {
            let refusal = self.refusal(&request);
            return self.reply(who, refusal);
        }
        let until_ms = self.now_ms + wait_ms;
        let behind = self.waiters[at..].iter().flat_map(|other| &other.request.keys);
        let passed: BTreeSet<String> = behind.filter(|key| request.keys.contains(key)).cloned().collect();
        self.waiters.insert(at, Waiter { request, since_ms: self.now_ms, until_ms });
        self.serve(passed);
        let start = self.waiters.iter().position(|waiter| waiter.request.who == who);
        if self.refuses_circles && start.is_some_and(|start| self.closes_circle(start)) {
            let waiter = self.leave(who);
            self.reply(who, "-DEADLOCK".to_owned());
            self.serve(waiter.request.keys);
        }
    }

    pub(super) fn release(&mut self, who: usize, key: &str, owner: &str, token: Option<u64>) {
        let found = self.holder(key, owner).filter(|holder| token.is_none_or(|token| token == holder.token));
        let is_held = found.is_some();
        if is_held {
            self.give_back(key, owner, who);
        }
        self.reply(who, format!(":{}\r\n", u8::from(is_held)));
        self.serve(is_held.then(|| key.to_owned()));
    }

    fn give_back(&mut self, key: &str, owner: &str, who: usize) {
        if let Some(Held::Lock(Kind::Reentrant, holders)) = self.keys.get_mut(key)
            && let Some(holder) = holders.iter_mut().find(|holder| holder.owner == owner && holder.count > 1)
        {
            holder.count -= 1;
            return;
        }
        self.end(key, owner, Reason::Released, Some(who));
    }

    pub(super) fn extend(&mut self, who: usize, key: &str, owner: &str, lease_ms: u64) {
        let now_ms = self.now_ms;
        let Some(holder) = self.holder(key, owner) else {
            let nil = self.nil_array(who);
            return self.reply(who, nil);
        };
        let is_leased = holder.session.is_none();
        if is_leased {
            holder.until_ms = Some(now_ms + lease_ms);
        }
        let token = holder.token;
        let fields =
            [("token", token_text(token)), ("lease", self.millis(who, is_leased.then_some(lease_ms)))];
        let text = self.map(who, &fields);
        self.reply(who, text);
    }

    /// LOCK.BREAK.
    pub(super) fn break_lock(&mut self, who: usize, key: &str, token: u64) {
        let owner = match self.keys.get(key) {
            Some(Held::Lock(_, holders)) => {
                let mut found = holders.iter().filter(|holder| holder.token == token && token > 0);
                found.next().map(|holder| holder.owner.clone())
            }
            _ => None,
        };
        if let Some(owner) = &owner {
            self.end(key, owner, Reason::Broken, Some(who));
        }
        self.reply(who, format!(":{}\r\n", u8::from(owner.is_some())));
        self.serve(owner.map(|_| key.to_owned()));
    }

    /// LOCK.TRANSFER.
    pub(super) fn transfer(
        &mut self,
        who: usize,
        (key, owner): (&str, &str),
        new: &str,
        lease_ms: Option<u64>,
    ) {
        let refusal = match (self.holder(key, owner).is_some(), self.holder(key, new).is_some()) {
            _ if owner == new => Some("ERR a lock cannot be transferred to its own owner"),
            (false, _) => Some("NOTHELD the owner does not hold this lock, or not with this token"),
            (true, true) => Some("ERR the new owner holds this lock already"),
            (true, false) => None,
        };
        if let Some(text) = refusal {
            return self.reply(who, format!("-{text}\r\n"));
        }
        let at = (0..self.waiters.len()).find(|at| self.may_take_over(*at, (key, owner), new));
        let mut concerned = vec![key.to_owned()];
        match (at, lease_ms) {
            (Some(at), _) => {
                let Waiter { request, since_ms, .. } = self.waiters.remove(at);
                self.end(key, owner, Reason::Transferred, Some(who));
                self.grant(&request, 0, self.now_ms - since_ms);
            }
            (None, Some(lease_ms)) => {
                self.give_to(key, owner, (new, lease_ms), who);
                concerned.extend(self.serve_owner(key, new));
            }
            (None, None) => {
                let text = "-NOLEASE no wait of the new owner can be answered: set a lease with LEASE\r\n";
                return self.reply(who, text.to_owned());
            }
        }
        let now_ms = self.now_ms;
        let (token, until_ms, session) = match self.holder(key, new) {
            Some(holder) => (holder.token, holder.until_ms, holder.session),
            None => panic!("{new} does not hold {key}"),
        };
        let left_ms = until_ms.map(|until_ms| until_ms - now_ms).filter(|_| session.is_none());
        let text = self.map(who, &[("token", token_text(token)), ("lease", self.millis(who, left_ms))]);
        self.reply(who, text);
        self.serve(concerned);
    }

    /// Answers the requests for several locks of an owner that has got this one in another way. Returns the keys that they no
    /// longer wait for.
    fn serve_owner(&mut self, key: &str, owner: &str) -> Vec<String> {
        let mut concerned = Vec::new();
        while let Some(at) = (0..self.waiters.len()).find(|at| {
            let request = &self.waiters[*at].request;
            let is_its = request.owner == owner && request.keys.len() > 1;
            is_its && request.keys.iter().any(|other| other == key) && self.is_ready(request, *at, Some(key))
        }) {
            concerned.extend(self.answer(at));
        }
        concerned
    }

    /// Answers a request that can be answered, and returns its keys.
    fn answer(&mut self, at: usize) -> Vec<String> {
        let Waiter { request, since_ms, .. } = self.waiters.remove(at);
        match request.keys.iter().find_map(|key| self.standing(key, &request).err()) {
            Some(text) => self.reply(request.who, format!("-{text}\r\n")),
            None => self.grant(&request, at, self.now_ms - since_ms),
        }
        request.keys
    }

    /// Whether a request can be answered with what an owner holds.
    fn may_take_over(&self, at: usize, (key, owner): (&str, &str), new: &str) -> bool {
        let request = &self.waiters[at].request;
        if request.owner != new || request.keys != [key] {
            return false;
        }
        let mut without =
            Model { keys: self.keys.clone(), sessions: self.sessions.clone(), ..Model::default() };
        if let Some(Held::Lock(_, holders)) = without.keys.get_mut(key) {
            holders.retain(|holder| holder.owner != owner);
            if holders.is_empty() {
                without.keys.remove(key);
            }
        }
        matches!(without.standing(key, request), Ok(Standing::Open))
    }

    /// An owner that does not wait gets what another one holds, for a lease.
    fn give_to(&mut self, key: &str, owner: &str, (new, lease_ms): (&str, u64), who: usize) {
        let Some(Held::Lock(kind, holders)) = self.keys.get(key) else { return };
        let kind = *kind;
        let own = holders.iter().find(|holder| holder.owner == owner).expect("it holds the lock");
        let count = if kind == Kind::Reentrant { 1 } else { own.count };
        self.end(key, owner, Reason::Transferred, Some(who));
        self.last_token += 1;
        let holder = Holder {
            owner: new.to_owned(),
            token: self.last_token,
            count,
            until_ms: Some(self.now_ms + lease_ms),
            session: None,
            by: None,
            is_native: true,
        };
        match self.keys.get_mut(key) {
            Some(Held::Lock(_, holders)) => holders.push(holder),
            _ => drop(self.keys.insert(key.to_owned(), Held::Lock(kind, vec![holder]))),
        }
    }

    /// SET key value NX PX lease of a client of Redis.
    pub(super) fn set_nx(&mut self, who: usize, key: &str, value: &str, lease_ms: u64) {
        if self.keys.contains_key(key) || self.is_awaited(key, self.waiters.len()) {
            let nil = if self.connections[who].is_resp3 { "_\r\n" } else { "$-1\r\n" };
            return self.reply(who, nil.to_owned());
        }
        let holder = Holder {
            owner: value.to_owned(),
            token: self.next_token(),
            count: 1,
            until_ms: Some(self.now_ms + lease_ms),
            session: None,
            by: Some(who),
            is_native: false,
        };
        self.keys.insert(key.to_owned(), Held::Lock(Kind::Exclusive, vec![holder]));
        self.reply(who, "+OK\r\n".to_owned());
    }

    /// DEL of several keys.
    pub(super) fn delete(&mut self, who: usize, keys: &[String]) {
        let (removed, _): (Vec<_>, Vec<_>) =
            keys.iter().cloned().partition(|key| self.keys.contains_key(key));
        removed.iter().for_each(|key| self.remove(key, who));
        self.reply(who, format!(":{}\r\n", removed.len()));
        self.serve(removed);
    }

    /// DEL and RPUSH in a transaction, after which nobody can wait for a lock of the key in vain.
    pub(super) fn make_list(&mut self, who: usize, key: &str) {
        let existed = self.keys.contains_key(key);
        self.remove(key, who);
        self.keys.insert(key.to_owned(), Held::List);
        self.reply(who, format!("*2\r\n:{}\r\n:1\r\n", u8::from(existed)));
        // Nobody looks at a key that was free, and still is no lock that has ended.
        if existed {
            self.serve([key.to_owned()]);
        }
    }

    /// PEXPIRE or PERSIST of an exclusive lock.
    pub(super) fn set_end(&mut self, who: usize, key: &str, lease_ms: Option<u64>) {
        let now_ms = self.now_ms;
        let mut is_changed = false;
        if let Some(Held::Lock(kind, holders)) = self.keys.get_mut(key) {
            if *kind != Kind::Exclusive || holders[0].session.is_some() {
                let text = "-ERR the lease of this lock is that of its holders: use LOCK.EXTEND, LOCK.RELEASE or \
                            LOCK.BREAK\r\n";
                return self.reply(who, text.to_owned());
            }
            is_changed = lease_ms.is_some() || holders[0].until_ms.is_some();
            holders[0].until_ms = lease_ms.map(|lease_ms| now_ms + lease_ms);
        }
        self.reply(who, format!(":{}\r\n", u8::from(is_changed)));
    }

    /// CLIENT UNBLOCK of a client that waits.
    pub(super) fn unblock(&mut self, who: usize) {
        let waiter = self.leave(who);
        let refusal = self.refusal(&waiter.request);
        self.reply(who, refusal);
        self.serve(waiter.request.keys);
    }

    /// LOCK.SESSION ATTACH.
    pub(super) fn attach(&mut self, who: usize, session: usize) {
        let has_own = self.connections[who].session.is_some_and(|own| {
            own != session && self.sessions[own] == Some(who) && !self.locks_of(own).is_empty()
        });
        let locks = self.locks_of(session);
        if self.sessions[session].is_none() && locks.is_empty() {
            return self.reply(who, "-ERR no such session\r\n".to_owned());
        }
        if has_own {
            let text = "-ERR this connection already has a session with locks\r\n";
            return self.reply(who, text.to_owned());
        }
        if let Some(own) = self.connections[who].session.filter(|own| *own != session)
            && self.sessions[own] == Some(who)
        {
            self.sessions[own] = None;
        }
        self.sessions[session] = Some(who);
        self.connections[who].session = Some(session);
        for (key, owner) in &locks {
            let holder = self.holder(key, owner).expect("a lock of a session has a holder");
            (holder.by, holder.until_ms) = (Some(who), None);
        }
        self.reply(who, format!(":{}\r\n", locks.len()));
    }

    pub(super) fn disconnect(&mut self, who: usize) {
        if self.waiters.iter().any(|waiter| waiter.request.who == who) {
            let waiter = self.leave(who);
            self.serve(waiter.request.keys);
        }
        let mut unread = std::mem::take(&mut self.connections[who].unread);
        unread.retain(|(key, owner, token)| {
            let is_his = |holder: &mut Holder| holder.token == *token && holder.by == Some(who);
            self.holder(key, owner).is_some_and(is_his)
        });
        unread.iter().for_each(|(key, owner, _)| self.give_back(key, owner, who));
        self.serve(unread.into_iter().map(|(key, ..)| key));
        let connection = std::mem::take(&mut self.connections[who]);
        if let Some(session) = connection.session.filter(|own| self.sessions[*own] == Some(who)) {
            self.sessions[session] = None;
            self.forget_client(who);
            for (key, owner) in self.locks_of(session) {
                let now_ms = self.now_ms;
                let holder = self.holder(&key, &owner).expect("a lock of a session has a holder");
                match holder.session {
                    Some((_, 0)) | None => self.end(&key, &owner, Reason::Session, None),
                    Some((_, delay_ms)) => holder.until_ms = Some(now_ms + delay_ms),
                }
                self.serve([key]);
            }
        }
        self.forget_client(who);
    }

    /// The keys of which a lease has ended, in order.
    pub(super) fn due(&self) -> Vec<String> {
        let is_due = |holder: &Holder| holder.until_ms.is_some_and(|until_ms| until_ms < self.now_ms);
        let due = self.keys.iter().filter(|(_, held)| match held {
            Held::Lock(_, holders) => holders.iter().any(is_due),
            Held::List => false,
        });
        due.map(|(key, _)| key.clone()).collect()
    }

    /// Ends the leases of these keys that have ended.
    pub(super) fn expire(&mut self, keys: &[String]) {
        let now_ms = self.now_ms;
        for key in keys {
            let Some(Held::Lock(_, holders)) = self.keys.get(key) else { continue };
            let due =
                holders.iter().filter(|holder| holder.until_ms.is_some_and(|until_ms| until_ms < now_ms));
            let mut owners: Vec<_> = due.map(|holder| (holder.until_ms, holder.owner.clone())).collect();
            owners.sort();
            owners.iter().for_each(|(_, owner)| self.end(key, owner, Reason::Expired, None));
        }
        self.serve(keys.to_vec());
    }

    /// Ends the waits whose time is over, in the order of the clients.
    pub(super) fn time_out(&mut self) {
        for who in 0..self.connections.len() {
            let is_over = |waiter: &&Waiter| waiter.request.who == who && waiter.until_ms <= self.now_ms;
            if self.connections[who].is_killed || !self.waiters.iter().any(|waiter| is_over(&waiter)) {
                continue;
            }
            let waiter = self.leave(who);
            let refusal = self.refusal(&waiter.request);
            self.reply(who, refusal);
            self.serve(waiter.request.keys);
        }
    }

    /// Removes a key, whose holders lose their locks.
    fn remove(&mut self, key: &str, author: usize) {
        if let Some(Held::Lock(_, holders)) = self.keys.get(key).cloned() {
            holders.iter().for_each(|holder| self.end(key, &holder.owner, Reason::Deleted, Some(author)));
        }
        self.keys.remove(key);
    }

    /// An owner does not hold a lock any more.
    fn end(&mut self, key: &str, owner: &str, reason: Reason, author: Option<usize>) {
        let Some(Held::Lock(_, holders)) = self.keys.get_mut(key) else { return };
        let at = holders.iter().position(|holder| holder.owner == owner).expect("it holds the lock");
        // Who is the first of several holders is the server's choice, and this is its.
        let holder = holders.swap_remove(at);
        if holders.is_empty() {
            self.keys.remove(key);
        }
        let is_own = reason == Reason::Deleted && holder.by.is_some() && holder.by == author;
        if !holder.is_native || reason == Reason::Released || is_own {
            return;
        }
        // The lease of a lock of a session is the delay after the end of its connection.
        let is_delay = reason == Reason::Expired && holder.session.is_some();
        let reason = if is_delay { Reason::Session } else { reason };
        let (name, token) = (format!("{reason:?}").to_lowercase(), holder.token);
        let text = format!("lost {token} {name}");
        let channel = format!("__lock__:{key}");
        self.published.push(format!(
            "*4\r\n{}{}{}{}",
            bulk("pmessage"),
            bulk("__lock__:*"),
            bulk(&channel),
            bulk(&text)
        ));
        if let Some(by) = holder.by.filter(|by| self.connections[*by].is_resp3) {
            let lost = format!("{}{}:{token}\r\n{}", bulk("lock-lost"), bulk(key), bulk(&name));
            // No client gives a reason, all are the same user, and a session of a simulation has the address `w`.
            let push = match reason {
                Reason::Broken => format!(">7\r\n{lost}_\r\n{}{}", bulk("default"), bulk("w")),
                _ => format!(">4\r\n{lost}"),
            };
            self.connections[by].told.pushes.push(push);
        }
    }

    /// Serves requests that wait for these keys, of which a hold has ended, and for keys that this concerns. A request
    /// whose session has ended is told so in its turn, and not before.
    fn serve(&mut self, keys: impl IntoIterator<Item = String>) {
        let mut ready: VecDeque<String> = keys.into_iter().collect();
        while let Some(key) = ready.pop_front() {
            while let Some(first) = self.waiters.iter().position(|waiter| waiter.request.keys.contains(&key))
                && self.is_ready(&self.waiters[first].request, first, Some(&key))
            {
                ready.extend(self.answer(first).into_iter().filter(|other| *other != key));
            }
        }
    }

    /// Whether a request can be answered: `ahead` requests are before it, and `ended` may have become free. One that needs
    /// fewer locks than it names looks at the others only if it may have that one. It sees the error of another key only
    /// when it would be granted.
    fn is_ready(&self, request: &Request, ahead: usize, ended: Option<&str>) -> bool {
        let (needed, has_choice) = (request.any.unwrap_or(request.keys.len()), request.has_choice());
        let may_have = |key: &&String| match self.standing(key, request) {
            Ok(Standing::Mine) => true,
            Ok(Standing::Open) => !self.is_awaited(key, ahead),
            Ok(Standing::Busy) => false,
            Err(_) => !has_choice,
        };
        let ended = ended.filter(|_| has_choice);
        let is_concerned = ended.is_none_or(|ended| may_have(&&ended.to_owned()));
        (is_concerned && request.keys.iter().filter(may_have).count() >= needed)
            || ended.is_some_and(|key| self.standing(key, request).is_err())
    }

    fn is_awaited(&self, key: &str, ahead: usize) -> bool {
        self.waiters[..ahead].iter().any(|waiter| waiter.request.keys.iter().any(|other| other == key))
    }

    fn standing(&self, key: &str, request: &Request) -> Result<Standing, String> {
        if let Term::Session { session, .. } = request.term
            && self.sessions[session].is_none()
        {
            return Err("ERR no such session".to_owned());
        }
        let (wanted, wanted_permits) = request.mode(key);
        let (kind, holders) = match self.keys.get(key) {
            None => return Ok(Standing::Open),
            Some(Held::List) => {
                return Err("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned());
            }
            Some(Held::Lock(kind, holders)) => (*kind, holders),
        };
        let Some(own) = holders.iter().find(|holder| holder.owner == request.owner) else {
            let permits: u32 = holders.iter().map(|holder| holder.count).sum();
            return match (kind, wanted) {
                (Kind::Shared, Kind::Shared) => Ok(Standing::Open),
                (Kind::Permits(limit), Kind::Permits(asked)) if limit != asked => {
                    Err(format!("ERR the lock has {limit} permits, not {asked}"))
                }
                (Kind::Permits(limit), Kind::Permits(_)) if permits + wanted_permits <= limit => {
                    Ok(Standing::Open)
                }
                _ => Ok(Standing::Busy),
            };
        };
        let counts = matches!(kind, Kind::Exclusive | Kind::Reentrant) || own.count == wanted_permits;
        if kind == wanted && counts {
            return Ok(Standing::Mine);
        }
        Err(format!("ERR the owner holds this lock in another way: {}", kind.name()))
    }

    /// Grants the locks of a request: all with one token, or with ANY some, each with its own.
    fn grant(&mut self, request: &Request, ahead: usize, waited_ms: u64) {
        let token_of =
            |model: &mut Self, key: &String| model.holder(key, &request.owner).map(|own| own.token);
        let held: Vec<Option<u64>> = request.keys.iter().map(|key| token_of(self, key)).collect();
        let again = held[0].filter(|_| held.iter().all(|other| *other == held[0]));
        let granted: Vec<(String, u64, bool)> = match request.any {
            None => {
                let token = again.unwrap_or_else(|| self.next_token());
                request.keys.iter().map(|key| (key.clone(), token, again.is_none())).collect()
            }
            Some(any) => {
                let (own, others): (Vec<_>, Vec<_>) =
                    request.keys.iter().zip(held).partition(|(_, token)| token.is_some());
                let open = others.into_iter().filter(|(key, _)| {
                    matches!(self.standing(key, request), Ok(Standing::Open)) && !self.is_awaited(key, ahead)
                });
                let found: Vec<_> = own.into_iter().chain(open).take(any).collect();
                let lock = |(key, held): (&String, Option<u64>)| {
                    (key.clone(), held.unwrap_or_else(|| self.next_token()), held.is_none())
                };
                found.into_iter().map(lock).collect()
            }
        };
        granted.iter().for_each(|(key, token, is_new)| self.hold(request, key, (*token, *is_new)));

        let who = request.who;
        if self.connections[who].is_killed {
            let new = granted.iter().filter(|(.., is_new)| *is_new);
            self.connections[who].unread =
                new.map(|(key, token, _)| (key.clone(), request.owner.clone(), *token)).collect();
        }
        let text = self.granted(request, &granted, waited_ms);
        self.reply(who, text);
    }

    /// The reply to a grant.
    fn granted(&self, request: &Request, granted: &[(String, u64, bool)], waited_ms: u64) -> String {
        let lease_ms = match request.term {
            Term::Lease(lease_ms) => Some(lease_ms),
            Term::Session { .. } => None,
        };
        let locks: Vec<(&str, String)> =
            granted.iter().map(|(key, token, _)| (&key[..], token_text(*token))).collect();
        let (name, value) = match request.any {
            None => ("token", token_text(granted[0].1)),
            Some(_) => ("locks", self.map(request.who, &locks)),
        };
        if request.is_just_token {
            return value;
        }
        let fields = [
            (name, value),
            ("lease", self.millis(request.who, lease_ms)),
            ("waited", format!(":{waited_ms}\r\n")),
        ];
        self.map(request.who, &fields)
    }

    /// The owner of a request has the lock of a key from now on.
    fn hold(&mut self, request: &Request, key: &String, (token, is_new): (u64, bool)) {
        let (kind, permits) = request.mode(key);
        let (lease_ms, session) = match request.term {
            Term::Lease(lease_ms) => (Some(lease_ms), None),
            Term::Session { session, delay_ms } => (None, Some((session, delay_ms))),
        };
        let holder = Holder {
            owner: request.owner.clone(),
            token,
            count: permits,
            until_ms: lease_ms.map(|lease_ms| self.now_ms + lease_ms),
            session,
            by: Some(request.who),
            is_native: true,
        };
        match self.keys.get_mut(key) {
            Some(Held::Lock(_, holders)) => {
                let at = holders.iter().position(|other| other.owner == request.owner);
                match at {
                    // With another token it gives the lock up, to take it anew.
                    Some(at) if is_new => {
                        holders.swap_remove(at);
                        holders.push(holder);
                    }
                    Some(at) => {
                        let count = holders[at].count + u32::from(kind == Kind::Reentrant);
                        holders[at] = Holder { count, ..holder };
                    }
                    None => holders.push(holder),
                }
            }
            _ => {
                self.keys.insert(key.clone(), Held::Lock(kind, vec![holder]));
            }
        }
    }

    fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Null, or with WHY who holds the first of the keys that is held.
    fn refusal(&self, request: &Request) -> String {
        let (who, is_resp3) = (request.who, self.connections[request.who].is_resp3);
        if !request.says_why {
            return if is_resp3 { "_\r\n" } else { "*-1\r\n" }.to_owned();
        }
        let null = || if is_resp3 { "_\r\n" } else { "$-1\r\n" }.to_owned();
        let held = request.keys.iter().find_map(|key| self.keys.get(key));
        let holder = match held {
            Some(Held::Lock(_, holders)) => holders.first(),
            _ => None,
        };
        let left_ms = holder.and_then(|holder| holder.until_ms).map(|until_ms| until_ms - self.now_ms);
        let mut fields = vec![
            ("holder", holder.map_or_else(null, |holder| bulk(&holder.owner))),
            ("token", holder.map_or_else(null, |holder| token_text(holder.token))),
            ("lease", self.millis(who, left_ms)),
            ("meta", if is_resp3 { "%0\r\n" } else { "*0\r\n" }.to_owned()),
        ];
        if matches!(held, Some(Held::List)) {
            fields.push(("type", bulk("list")));
        }
        self.map(who, &[("refused", self.map(who, &fields))])
    }

    /// Whether this request, which has just begun to wait, waits for itself, by way of others.
    fn closes_circle(&self, start: usize) -> bool {
        let (mut seen, mut open) = (vec![false; self.waiters.len()], vec![start]);
        while let Some(at) = open.pop() {
            for owner in self.awaited_by(at) {
                if owner == self.waiters[start].request.owner {
                    return true;
                }
                for (next, waiter) in self.waiters.iter().enumerate() {
                    if waiter.request.owner == owner && !std::mem::replace(&mut seen[next], true) {
                        open.push(next);
                    }
                }
            }
        }
        false
    }

    /// The other owners for which a request must wait: holders, and those before it that wait for several keys.
    fn awaited_by(&self, at: usize) -> Vec<String> {
        let request = &self.waiters[at].request;
        // Any of several owners may give it what it waits for.
        if request.has_choice() {
            return Vec::new();
        }
        let mut owners = Vec::new();
        for key in &request.keys {
            if let Some(Held::Lock(kind, holders)) = self.keys.get(key)
                && (!matches!(kind, Kind::Permits(_)) || holders.len() == 1)
            {
                owners.extend(holders.iter().map(|holder| holder.owner.clone()));
            }
            let ahead = self.waiters[..at].iter().map(|waiter| &waiter.request);
            let ahead = ahead.filter(|other| other.keys.len() > 1 && !other.has_choice());
            let ahead = ahead.filter(|other| other.keys.contains(key));
            owners.extend(ahead.map(|other| other.owner.clone()));
        }
        owners.retain(|owner| *owner != request.owner);
        owners
    }

    pub(super) fn holder(&mut self, key: &str, owner: &str) -> Option<&mut Holder> {
        match self.keys.get_mut(key) {
            Some(Held::Lock(_, holders)) => holders.iter_mut().find(|holder| holder.owner == owner),
            _ => None,
        }
    }

    /// Keys and owners of the locks of a session, in order.
    fn locks_of(&self, session: usize) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (key, held) in &self.keys {
            let Held::Lock(_, holders) = held else { continue };
            let own = holders.iter().filter(|holder| holder.session.is_some_and(|(id, _)| id == session));
            let mut own: Vec<&Holder> = own.collect();
            own.sort_by_key(|holder| holder.token);
            found.extend(own.into_iter().map(|holder| (key.clone(), holder.owner.clone())));
        }
        found
    }

    fn forget_client(&mut self, who: usize) {
        for held in self.keys.values_mut() {
            let Held::Lock(_, holders) = held else { continue };
            holders.iter_mut().filter(|holder| holder.by == Some(who)).for_each(|holder| holder.by = None);
        }
    }

    fn leave(&mut self, who: usize) -> Waiter {
        let at = self.waiters.iter().position(|waiter| waiter.request.who == who).expect("it waits");
        self.waiters.remove(at)
    }

    pub(super) fn reply(&mut self, who: usize, text: String) {
        self.connections[who].told.replies.push(text);
    }

    fn nil_array(&self, who: usize) -> String {
        if self.connections[who].is_resp3 { "_\r\n" } else { "*-1\r\n" }.to_owned()
    }

    fn millis(&self, who: usize, millis: Option<u64>) -> String {
        let nil = if self.connections[who].is_resp3 { "_\r\n" } else { "$-1\r\n" };
        millis.map_or(nil.to_owned(), |millis| format!(":{millis}\r\n"))
    }

    fn map(&self, who: usize, fields: &[(&str, String)]) -> String {
        let head = match self.connections[who].is_resp3 {
            true => format!("%{}\r\n", fields.len()),
            false => format!("*{}\r\n", fields.len() * 2),
        };
        fields.iter().fold(head, |text, (name, value)| text + &bulk(name) + value)
    }
}

fn token_text(token: u64) -> String {
    format!(":{token}\r\n")
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
