//! Wrong passwords by address: from an address with too many, the next login is looked at later.
//!
//! Owns    for each such address, until when its wrong passwords count, and the logins that wait.
//! Rule    an address is one of IPv4, or a network of IPv6 (64 bits), because its owner has all of it. Unix sockets and
//!         connections in process have none and are never delayed.
//! Rule    [`FREE`] wrong passwords cost nothing; each further one costs `login-delay`, and so does a right one that comes
//!         meanwhile. In each `login-delay` without a wrong password, one is forgotten.
//! Rule    logins that wait are looked at in turn: first those of the connection with the fewest wrong passwords, then the
//!         one that has waited longest. A connection that does not come in its turn for a `login-delay` loses its place.
//! Time    is the server's clock.
//! Bounds  `ADDRESSES_MAX` addresses; beyond these, the one that is forgotten first gives way. A connection waits with one
//!         login at most.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use redlatch_proto::clock::LockTime;

use super::clients::Client;

/// Wrong passwords in a row that delay nothing: those of a pool that is configured wrongly, and of its next try.
pub const FREE: u64 = 30;
/// Addresses that are remembered.
pub(crate) const ADDRESSES_MAX: usize = 4_096;

/// The wrong passwords of one server.
#[derive(Debug, Default)]
pub struct LoginDelays(Mutex<Origins>);

#[derive(Debug, Default)]
struct Origins {
    by_origin: BTreeMap<Origin, Delayed>,
    /// Logins that have waited, ever.
    arrivals: u64,
}

/// One address with wrong passwords.
#[derive(Debug)]
struct Delayed {
    /// When its wrong passwords are forgotten.
    until: LockTime,
    /// The logins that wait, in the order of their turns.
    queue: BTreeMap<Place, Arc<Client>>,
    /// Since when the first of the queue has been the first.
    first_since: LockTime,
}

/// The place of a login in its queue: the wrong passwords of its connection, and the number of its arrival.
type Place = (u64, u64);

/// The logins of one connection.
#[derive(Debug, Default)]
pub struct LoginTurn {
    /// Those that were looked at and wrong.
    wrong: u64,
    /// The number of the arrival of the one that waits.
    arrival: Option<u64>,
}

impl LoginTurn {
    /// Whether a login is in the queue of its address.
    pub fn is_waiting(&self) -> bool {
        self.arrival.is_some()
    }

    /// A login was looked at and is wrong.
    pub(crate) fn was_wrong(&mut self) {
        self.wrong = self.wrong.saturating_add(1);
    }
}

/// Where logins come from.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Origin(u8, u64);

impl Origin {
    /// The origin of a client with this address, as CLIENT LIST shows it.
    pub fn of(peer: &str) -> Option<Self> {
        let address: SocketAddr = peer.parse().ok()?;
        Some(match address.ip().to_canonical() {
            IpAddr::V4(ip) => Self(4, u32::from(ip).into()),
            IpAddr::V6(ip) => Self(6, u64::try_from(u128::from(ip) >> 64).unwrap_or(u64::MAX)),
        })
    }
}

impl Delayed {
    fn new(now: LockTime) -> Self {
        Self { until: now, queue: BTreeMap::new(), first_since: now }
    }

    /// When the next login is looked at.
    fn next_look(&self, delay_ms: u64) -> LockTime {
        let free_ms = delay_ms.saturating_mul(FREE.saturating_sub(1));
        LockTime::from_millis(self.until.as_millis().saturating_sub(free_ms))
    }

    fn first(&self) -> Option<(Place, &Arc<Client>)> {
        self.queue.first_key_value().map(|(place, client)| (*place, client))
    }

    /// Adds a login, unless it is there.
    fn add(&mut self, place: Place, client: &Arc<Client>, now: LockTime) {
        let first = self.first().map(|(first, _)| first);
        self.queue.entry(place).or_insert_with(|| Arc::clone(client));
        if first.is_none_or(|first| place < first) {
            self.first_since = now;
        }
    }

    fn remove(&mut self, place: Place, now: LockTime) {
        if self.first().is_some_and(|(first, _)| first == place) {
            self.first_since = now;
        }
        self.queue.remove(&place);
    }

    /// Until when the first one has its turn.
    fn turn_ends(&self, delay_ms: u64) -> LockTime {
        self.first_since.max(self.next_look(delay_ms)) + delay_ms
    }

    /// When the login at this place asks again; `None`: it is its turn.
    fn again(&mut self, place: Place, now: LockTime, delay_ms: u64) -> Option<LockTime> {
        if let Some((first, _)) = self.first()
            && first != place
            && self.turn_ends(delay_ms) <= now
        {
            self.remove(first, now);
        }
        if self.first().is_some_and(|(first, _)| first != place) {
            return Some(self.turn_ends(delay_ms));
        }
        Some(self.next_look(delay_ms)).filter(|from| *from > now)
    }
}

impl LoginDelays {
    /// Whether a login from there is not looked at now, or has others before it. `delay_ms`: the setting `login-delay`.
    pub fn delays(&self, origin: Origin, now: LockTime, delay_ms: u64) -> bool {
        let origins = self.0.lock();
        let delayed = origins.by_origin.get(&origin).filter(|_| delay_ms > 0);
        delayed.is_some_and(|delayed| delayed.next_look(delay_ms) > now || !delayed.queue.is_empty())
    }

    /// Asks for the turn of a login, which is in the queue from now on. Returns when it asks again; `None`: it is looked at
    /// now. After [`Client::wake`] it asks earlier.
    pub fn ask(
        &self,
        origin: Origin,
        (client, turn): (&Arc<Client>, &mut LoginTurn),
        now: LockTime,
        delay_ms: u64,
    ) -> Option<LockTime> {
        let mut origins = self.0.lock();
        origins.arrivals = origins.arrivals.saturating_add(1);
        let arrival = turn.arrival.take().unwrap_or(origins.arrivals);
        let delayed = origins.by_origin.get_mut(&origin).filter(|_| delay_ms > 0)?;
        let place = (turn.wrong, arrival);
        delayed.add(place, client, now);
        turn.arrival = Some(arrival);
        delayed.again(place, now, delay_ms)
    }

    /// A login was looked at, or its connection has ended. The first one that waits asks again.
    pub fn leave(&self, origin: Origin, turn: &mut LoginTurn, now: LockTime) {
        let mut origins = self.0.lock();
        let arrival = turn.arrival.take();
        let Some(delayed) = origins.by_origin.get_mut(&origin) else { return };
        arrival.iter().for_each(|arrival| delayed.remove((turn.wrong, *arrival), now));
        let first = delayed.first().map(|(_, client)| Arc::clone(client));
        drop(origins);
        first.iter().for_each(|first| first.wake());
    }

    /// A password from there was wrong.
    pub fn failed(&self, origin: Origin, now: LockTime, delay_ms: u64) {
        if delay_ms == 0 {
            return;
        }
        let origins = &mut self.0.lock().by_origin;
        if origins.len() >= ADDRESSES_MAX && !origins.contains_key(&origin) {
            origins.retain(|_, delayed| delayed.until > now);
            let first = origins.iter().min_by_key(|(_, delayed)| delayed.until).map(|(origin, _)| *origin);
            if let Some(first) = first.filter(|_| origins.len() >= ADDRESSES_MAX) {
                origins.remove(&first);
            }
        }
        let delayed = origins.entry(origin).or_insert_with(|| Delayed::new(now));
        delayed.until = LockTime::from_millis(delayed.until.max(now).as_millis().saturating_add(delay_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LockTime {
        LockTime::from_millis(millis)
    }

    fn origin(peer: &str) -> Origin {
        Origin::of(peer).expect("an address")
    }

    /// A connection: its client and its turn.
    fn connection(id: u64) -> (Arc<Client>, LoginTurn) {
        let client = Client::new(id, String::new(), String::new(), false, at(0));
        (Arc::new(client), LoginTurn::default())
    }

    /// When a login of a new connection is looked at, if not now.
    fn held(delays: &LoginDelays, origin: Origin, now: LockTime, delay_ms: u64) -> Option<LockTime> {
        let (client, mut turn) = connection(1);
        let again = delays.ask(origin, (&client, &mut turn), now, delay_ms);
        delays.leave(origin, &mut turn, now);
        assert_eq!(again.is_some(), delays.delays(origin, now, delay_ms));
        again
    }

    /// Delays from an address that has used up its free wrong passwords at the time 0.
    fn used_up(here: Origin) -> LoginDelays {
        let delays = LoginDelays::default();
        (0..FREE).for_each(|_| delays.failed(here, at(0), 1_000));
        delays
    }

    #[test]
    fn the_connection_with_the_fewest_wrong_passwords_has_the_next_turn_then_the_first_that_came() {
        let here = origin("10.0.0.7:1");
        let delays = used_up(here);
        let mut all: Vec<_> = (0..4).map(connection).collect();
        all[0].1.was_wrong();
        all[1].1.was_wrong();
        for (client, turn) in &mut all {
            assert!(delays.ask(here, (client, turn), at(0), 1_000) >= Some(at(1_000)));
        }
        for (second, next) in (1..).zip([2, 3, 0, 1]) {
            let now = at(second * 1_000);
            let looked_at: Vec<_> = (0..4)
                .filter(|n| {
                    let (client, turn) = &mut all[*n];
                    turn.is_waiting() && delays.ask(here, (client, turn), now, 1_000).is_none()
                })
                .collect();
            assert_eq!(looked_at, [next]);
            delays.failed(here, now, 1_000);
            delays.leave(here, &mut all[next].1, now);
            all[next].1.was_wrong();
        }
        assert!(delays.0.lock().by_origin.values().all(|delayed| delayed.queue.is_empty()));
    }

    #[test]
    fn a_connection_that_ends_or_does_not_come_holds_nobody_up() {
        let here = origin("10.0.0.7:1");
        let delays = used_up(here);
        let mut all: Vec<_> = (0..3).map(connection).collect();
        let again: Vec<_> =
            all.iter_mut().map(|(client, turn)| delays.ask(here, (client, turn), at(0), 1_000)).collect();
        assert_eq!(again, [Some(at(1_000)), Some(at(2_000)), Some(at(2_000))]);
        delays.leave(here, &mut all[0].1, at(500));
        let mut ask = |n: usize, millis| {
            let (client, turn) = &mut all[n];
            delays.ask(here, (client, turn), at(millis), 1_000)
        };
        // The next one has its turn at 1000, and does not come.
        assert_eq!((ask(2, 1_000), ask(2, 1_999)), (Some(at(2_000)), Some(at(2_000))));
        assert_eq!((ask(2, 2_000), ask(1, 2_000)), (None, None), "it is the first again once it comes");
        all.iter_mut().for_each(|(_, turn)| delays.leave(here, turn, at(2_000)));
        assert!(delays.0.lock().by_origin[&here].queue.is_empty());
    }

    #[test]
    fn thirty_are_free_then_one_in_each_delay_until_they_are_forgotten() {
        let (delays, here) = (LoginDelays::default(), origin("10.0.0.7:1"));
        for _ in 0..FREE {
            assert_eq!(held(&delays, here, at(500), 1_000), None);
            delays.failed(here, at(500), 1_000);
        }
        assert_eq!(held(&delays, here, at(500), 1_000), Some(at(1_500)));
        assert_eq!(held(&delays, here, at(1_500), 1_000), None);
        delays.failed(here, at(1_500), 1_000);
        assert_eq!(held(&delays, here, at(1_500), 1_000), Some(at(2_500)));
        assert_eq!(held(&delays, here, at(1_500), 0), None, "it was turned off");
        assert_eq!(held(&delays, origin("10.0.0.8:1"), at(500), 1_000), None, "elsewhere");
        // After as many delays all is forgotten.
        for _ in 0..FREE {
            assert_eq!(held(&delays, here, at(31_500), 1_000), None);
            delays.failed(here, at(31_500), 1_000);
        }
        assert_eq!(held(&delays, here, at(31_500), 1_000), Some(at(32_500)));
    }

    #[test]
    fn an_origin_is_an_address_or_a_network_and_no_port() {
        assert_eq!(origin("10.0.0.7:1"), origin("10.0.0.7:2"));
        assert_eq!(origin("10.0.0.7:1"), origin("[::ffff:10.0.0.7]:2"));
        assert_eq!(origin("[2001:db8:0:1::1]:1"), origin("[2001:db8:0:1:ffff::2]:9"));
        assert_ne!(origin("[2001:db8:0:1::1]:1"), origin("[2001:db8:0:2::1]:1"));
        assert_ne!(origin("[::a00:7]:1"), origin("10.0.0.7:1"));
        assert_eq!([Origin::of(""), Origin::of("/run/redlatch.sock:0")], [None, None]);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_guesses_most() {
        let delays = LoginDelays::default();
        let most = origin("10.9.9.9:1");
        for _ in 0..FREE {
            delays.failed(most, at(0), 1_000);
        }
        for n in 0..3 * ADDRESSES_MAX {
            let peer = format!("10.{}.{}.{}:1", 1 + (n >> 16), n >> 8 & 255, n & 255);
            delays.failed(origin(&peer), at(0), 1_000);
        }
        assert_eq!(delays.0.lock().by_origin.len(), ADDRESSES_MAX);
        assert!(held(&delays, most, at(0), 1_000).is_some());
        delays.failed(origin("11.0.0.1:1"), at(40_000), 1_000);
        assert_eq!(delays.0.lock().by_origin.len(), 1, "who has waited is forgotten");
    }
}
