//! Lock sessions: locks that end with the connection that took them.
//!
//! Owns    every session, by its id, and the keys of its locks.
//! Rule    a session belongs to one connection at a time. Without a connection it lasts as long as it has a lock.
//! Locks   one mutex per session. Nothing else is locked under it. It may be locked under the shard of a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;

use super::channels::shrink;
use super::clients::ClientId;
use super::ledger::{Charge, Kind, Ledger};
use crate::types::heap;

/// One session.
#[derive(Debug)]
pub struct LockSession {
    /// Its number. A client that knows it can take the session over, so it is random.
    pub id: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The client whose connection it belongs to; `None`: that connection has ended.
    client: Option<ClientId>,
    /// By database, key and fencing token: several owners may hold one lock.
    locks: BTreeMap<(u16, Bytes, u64), SessionLock>,
    /// Bytes of the names of the locks.
    name_bytes: usize,
    charge: Charge,
}

/// The number of a session as clients write it.
pub fn name(id: u64) -> String {
    format!("{id:016x}")
}

/// A lock of a session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionLock {
    /// The owner under which it is held.
    pub owner: Bytes,
    /// Its fencing token.
    pub token: u64,
    /// How long it outlives the connection, in milliseconds.
    pub delay_ms: u64,
}

impl LockSession {
    /// Notes a lock that was granted to it. False if the connection of the session has ended.
    pub fn hold(&self, database: u16, key: Bytes, lock: SessionLock) -> bool {
        let mut state = self.state.lock();
        let bytes = name_bytes(&key, &lock);
        let before = state.locks.insert((database, key.clone(), lock.token), lock);
        let before = before.map_or(0, |before| name_bytes(&key, &before));
        let sum = state.name_bytes + bytes - before;
        state.recharge(sum);
        state.client.is_some()
    }

    /// Its locks, each with its database and key.
    pub fn locks(&self) -> Vec<((u16, Bytes), SessionLock)> {
        let state = self.state.lock();
        let locks = state.locks.iter();
        locks.map(|((database, key, _), lock)| ((*database, key.clone()), lock.clone())).collect()
    }

    /// Two databases were exchanged, and its locks with them.
    fn swap(&self, a: u16, b: u16) {
        let mut state = self.state.lock();
        let locks = std::mem::take(&mut state.locks);
        let swapped = |database| match database {
            _ if database == a => b,
            _ if database == b => a,
            _ => database,
        };
        let places = locks.into_iter();
        state.locks =
            places.map(|((database, key, token), lock)| ((swapped(database), key, token), lock)).collect();
    }

    /// The client whose connection it belongs to.
    pub fn client(&self) -> Option<ClientId> {
        self.state.lock().client
    }
}

impl State {
    /// A lock was added or removed, and names of so many bytes with it.
    fn recharge(&mut self, name_bytes: usize) {
        self.name_bytes = name_bytes;
        let places = heap::tree::<((u16, Bytes, u64), SessionLock)>(self.locks.len());
        let own = size_of::<LockSession>() + heap::in_table::<(u64, Arc<LockSession>)>();
        self.charge.set(own + places + name_bytes);
    }
}

/// A lock of a session that a server before this one had begun.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RestoredLock {
    /// The number of the session.
    pub session: u64,
    pub database: u16,
    pub key: Bytes,
    pub lock: SessionLock,
}

/// Bytes of the names of a lock.
fn name_bytes(key: &Bytes, lock: &SessionLock) -> usize {
    heap::shared(key) + heap::shared(&lock.owner)
}

/// All sessions.
#[derive(Debug, Default)]
pub struct LockSessions {
    by_id: DashMap<u64, Arc<LockSession>>,
    ledger: Arc<Ledger>,
}

impl LockSessions {
    /// No session yet. Their memory is charged to `ledger`.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        Self { by_id: DashMap::default(), ledger: Arc::clone(ledger) }
    }

    /// Begins a session of a client. `id` must be random.
    pub fn begin(&self, id: u64, client: ClientId) -> Arc<LockSession> {
        let session = self.new_session(id, Some(client));
        self.by_id.insert(id, Arc::clone(&session));
        session
    }

    fn new_session(&self, id: u64, client: Option<ClientId>) -> Arc<LockSession> {
        let (locks, charge) = (BTreeMap::new(), self.ledger.open(Kind::LockSessions));
        let mut state = State { client, locks, name_bytes: 0, charge };
        state.recharge(0);
        Arc::new(LockSession { id, state: Mutex::new(state) })
    }

    /// Adds locks that outlive their connections, which a server before this one had: a client may attach to their sessions.
    pub fn restore(&self, locks: Vec<RestoredLock>) {
        for RestoredLock { session, database, key, lock } in locks {
            let session =
                Arc::clone(&self.by_id.entry(session).or_insert_with(|| self.new_session(session, None)));
            session.hold(database, key, lock);
        }
    }

    /// The clients whose connections have locks.
    pub fn holders(&self) -> Vec<ClientId> {
        let holder = |session: &LockSession| {
            let state = session.state.lock();
            state.client.filter(|_| !state.locks.is_empty())
        };
        self.by_id.iter().filter_map(|session| holder(&session)).collect()
    }

    /// The session of that number.
    pub fn get(&self, id: u64) -> Option<Arc<LockSession>> {
        self.by_id.get(&id).map(|session| Arc::clone(&session))
    }

    /// Moves a session to the connection of another client.
    pub fn attach(&self, session: &Arc<LockSession>, client: ClientId) {
        session.state.lock().client = Some(client);
        // Its last connection may have ended since it was found.
        self.by_id.insert(session.id, Arc::clone(session));
    }

    /// Two databases were exchanged. All shards are locked.
    pub fn swap(&self, a: u16, b: u16) {
        self.by_id.iter().for_each(|session| session.swap(a, b));
    }

    /// Removes a session that has neither a connection nor a lock.
    fn remove_if_over(&self, id: u64) {
        self.by_id.remove_if(&id, |_, session| {
            let state = session.state.lock();
            state.client.is_none() && state.locks.is_empty()
        });
        shrink(&self.by_id);
    }

    /// The connection of this client has ended. False if the session has moved to another connection before.
    pub(crate) fn detach(&self, session: &LockSession, client: ClientId) -> bool {
        let mut state = session.state.lock();
        if state.client != Some(client) {
            return false;
        }
        state.client = None;
        drop(state);
        self.remove_if_over(session.id);
        true
    }

    /// A lock of a session has ended. A session without a connection ends with its last lock.
    pub fn forget(&self, id: u64, database: u16, key: &Bytes, token: u64) {
        let Some(session) = self.get(id) else { return };
        let mut state = session.state.lock();
        if let Some(lock) = state.locks.remove(&(database, key.clone(), token)) {
            let sum = state.name_bytes - name_bytes(key, &lock);
            state.recharge(sum);
        }
        drop(state);
        self.remove_if_over(id);
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True if there is no session.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_its_connection_and_its_last_lock() {
        let (sessions, key) = (LockSessions::default(), Bytes::from_static(b"k"));
        let lock = |token| SessionLock { owner: Bytes::from_static(b"me"), token, delay_ms: 9 };
        let session = sessions.begin(7, 1);
        assert_eq!(name(session.id), "0000000000000007");
        assert!(session.hold(0, key.clone(), lock(5)));
        assert!(!sessions.detach(&session, 2), "it belongs to another client");
        assert!(sessions.detach(&session, 1));
        assert!(sessions.get(7).is_some(), "its lock outlives the connection");
        sessions.forget(7, 0, &key, 4);
        assert_eq!(session.locks(), [((0, key.clone()), lock(5))], "another grant of the key has ended");
        sessions.forget(7, 0, &key, 5);
        assert!(sessions.is_empty());
        let session = sessions.begin(8, 1);
        sessions.attach(&session, 3);
        assert!(sessions.detach(&session, 3));
        assert!(sessions.is_empty() && !session.hold(0, key, lock(6)));
    }

    #[test]
    fn a_restored_session_waits_for_a_connection_and_ends_with_its_last_lock() {
        let (sessions, key) = (LockSessions::default(), Bytes::from_static(b"k"));
        let lock = |token| SessionLock { owner: Bytes::from_static(b"me"), token, delay_ms: 9 };
        let restored = |token| RestoredLock { session: 7, database: 0, key: key.clone(), lock: lock(token) };
        sessions.restore(vec![restored(5), restored(6)]);
        let session = sessions.get(7).expect("it is restored");
        assert_eq!((session.client(), session.locks().len(), sessions.holders()), (None, 2, vec![]));
        sessions.attach(&session, 3);
        assert_eq!(sessions.holders(), [3]);
        sessions.forget(7, 0, &key, 5);
        sessions.forget(7, 0, &key, 6);
        assert_eq!((sessions.len(), sessions.holders()), (1, vec![]), "it has a connection");
        sessions.restore(vec![RestoredLock { session: 8, ..restored(7) }]);
        sessions.forget(8, 0, &key, 7);
        assert_eq!(sessions.len(), 1);
    }
}
