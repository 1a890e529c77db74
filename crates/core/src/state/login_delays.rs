//! Wrong passwords by address: from an address with too many, the next login is looked at later.
//!
//! Owns    for each such address, until when its wrong passwords count.
//! Rule    an address is one of IPv4, or a network of IPv6 (64 bits), because its owner has all of it. Unix sockets and
//!         connections in process have none and are never delayed.
//! Rule    [`FREE`] wrong passwords cost nothing; each further one costs `login-delay`, and so does a right one that comes
//!         meanwhile. In each `login-delay` without a wrong password, one is forgotten.
//! Time    is the server's clock.
//! Bounds  [`ADDRESSES_MAX`] addresses; beyond these, the one that is forgotten first gives way.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use parking_lot::Mutex;

use redlatch_proto::clock::LockTime;

/// Wrong passwords in a row that delay nothing: those of a pool that is configured wrongly, and of its next try.
pub const FREE: u64 = 30;
/// Addresses that are remembered.
pub const ADDRESSES_MAX: usize = 4_096;

/// The wrong passwords of one server.
#[derive(Debug, Default)]
pub struct LoginDelays(Mutex<BTreeMap<Origin, LockTime>>);

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

impl LoginDelays {
    /// When a login from there is looked at, if not now. `delay_ms`: the setting `login-delay`; 0: now.
    pub fn held(&self, origin: Origin, now: LockTime, delay_ms: u64) -> Option<LockTime> {
        let until_ms = self.0.lock().get(&origin)?.as_millis();
        let from_ms = until_ms.saturating_sub(delay_ms.saturating_mul(FREE.saturating_sub(1)));
        (delay_ms > 0 && from_ms > now.as_millis()).then(|| LockTime::from_millis(from_ms))
    }

    /// A password from there was wrong.
    pub fn failed(&self, origin: Origin, now: LockTime, delay_ms: u64) {
        if delay_ms == 0 {
            return;
        }
        let mut origins = self.0.lock();
        if origins.len() >= ADDRESSES_MAX && !origins.contains_key(&origin) {
            origins.retain(|_, until| *until > now);
            let first = origins.iter().min_by_key(|(_, until)| **until).map(|(origin, _)| *origin);
            if let Some(first) = first.filter(|_| origins.len() >= ADDRESSES_MAX) {
                origins.remove(&first);
            }
        }
        let until = origins.entry(origin).or_insert(now);
        *until = LockTime::from_millis((*until).max(now).as_millis().saturating_add(delay_ms));
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

    #[test]
    fn thirty_are_free_then_one_in_each_delay_until_they_are_forgotten() {
        let (delays, here) = (LoginDelays::default(), origin("10.0.0.7:1"));
        for _ in 0..FREE {
            assert_eq!(delays.held(here, at(500), 1_000), None);
            delays.failed(here, at(500), 1_000);
        }
        assert_eq!(delays.held(here, at(500), 1_000), Some(at(1_500)));
        assert_eq!(delays.held(here, at(1_500), 1_000), None);
        delays.failed(here, at(1_500), 1_000);
        assert_eq!(delays.held(here, at(1_500), 1_000), Some(at(2_500)));
        assert_eq!(delays.held(here, at(1_500), 0), None, "it was turned off");
        assert_eq!(delays.held(origin("10.0.0.8:1"), at(500), 1_000), None, "elsewhere");
        // After as many delays all is forgotten.
        for _ in 0..FREE {
            assert_eq!(delays.held(here, at(31_500), 1_000), None);
            delays.failed(here, at(31_500), 1_000);
        }
        assert_eq!(delays.held(here, at(31_500), 1_000), Some(at(32_500)));
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
        assert_eq!(delays.0.lock().len(), ADDRESSES_MAX);
        assert!(delays.held(most, at(0), 1_000).is_some());
        delays.failed(origin("11.0.0.1:1"), at(40_000), 1_000);
        assert_eq!(delays.0.lock().len(), 1, "who has waited is forgotten");
    }
}
