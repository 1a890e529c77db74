//! Contention: for each lock that is waited for, or was held lately, how long it is waited for and held.
//!
//! Owns    the figures of `/api/contention`, made from answers of LOCK.LIST and LOCK.HISTORY.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::cmp::Reverse;
use std::collections::BTreeMap;

use redlatch_proto::lock::EndReason;
use redlatch_proto::number::total;
use serde_json::{Map, Value};

use super::json::{self, bytes_of};

/// Locks that one response shows.
pub(super) const CONTENDED_MAX: usize = 100;

/// What is known of one lock.
#[derive(Debug, Default)]
struct Contended {
    waiters: i64,
    /// For how long the first waiter has waited, in milliseconds.
    waited: Option<i64>,
    polls: i64,
    /// How long each remembered holder has held it, in milliseconds.
    held: Vec<i64>,
    lost: usize,
    /// How often each client has held it.
    clients: BTreeMap<i64, u64>,
}

/// The locks of these lists, first those that are waited for the longest, then those that were held most often.
pub(super) fn contended(listed: &[Value], ends: &[Value]) -> Vec<Value> {
    let mut all: BTreeMap<Vec<u8>, Contended> = BTreeMap::new();
    let number = |object: &Value, name: &str| object[name].as_i64();
    for lock in listed {
        let Some(key) = bytes_of(lock, "key") else { continue };
        let contended = all.entry(key).or_default();
        contended.waiters = number(lock, "waiters").unwrap_or(0);
        contended.waited = number(lock, "waited");
        contended.polls = number(lock, "polls").unwrap_or(0);
    }
    for end in ends {
        let Some(key) = bytes_of(end, "key") else { continue };
        let contended = all.entry(key).or_default();
        contended.held.extend(number(end, "held"));
        contended.lost = contended.lost.saturating_add((end["reason"] != EndReason::Released.name()).into());
        let holds = contended.clients.entry(number(end, "client-id").unwrap_or(0)).or_default();
        *holds = holds.saturating_add(1);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, contended)| Reverse((contended.waited, contended.waiters, contended.held.len())));
    all.into_iter().map(|(key, contended)| contended.value(&key)).collect()
}

impl Contended {
    fn value(mut self, key: &[u8]) -> Value {
        self.held.sort_unstable();
        let mut object = Map::new();
        json::insert(&mut object, "key", key);
        let shares: Vec<u64> = self.clients.values().copied().collect();
        let fields: [(&str, Value); 9] = [
            ("waiters", self.waiters.into()),
            ("waited", self.waited.into()),
            ("polls", self.polls.into()),
            ("holds", self.held.len().into()),
            ("hold_p50", percentile(&self.held, 50).into()),
            ("hold_p99", percentile(&self.held, 99).into()),
            ("lost", self.lost.into()),
            ("clients", shares.len().into()),
            ("fairness", fairness(&shares).into()),
        ];
        object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object)
    }
}

/// The least value that `percent` of these, which are in order, do not exceed.
fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Jain's index of how equal the shares of the clients are: 1 if all are equal, 1/n if one of n has everything. `None` for
/// a client alone.
fn fairness(shares: &[u64]) -> Option<f64> {
    let sum = total(shares.iter().copied()) as f64;
    let squares = total(shares.iter().map(|share| share.saturating_mul(*share))) as f64;
    (shares.len() > 1).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn end(key: &str, client: i64, held: i64, reason: &str) -> Value {
        json!({ "key": key, "client-id": client, "held": held, "reason": reason })
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(percentile(&[7], 99), Some(7));
        let hundred: Vec<i64> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (Some(50), Some(99)));
        assert_eq!((percentile(&[1, 9], 50), percentile(&[1, 9], 99)), (Some(1), Some(9)));
    }

    #[test]
    fn equal_shares_are_fair_and_one_share_is_not() {
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[9]), None, "alone");
        assert_eq!(fairness(&[4, 4, 4]), Some(1.0));
        let unfair = fairness(&[1_000_000, 1, 1, 1]).expect("four clients");
        assert!((unfair - 0.25).abs() < 0.001, "{unfair}");
    }

    #[test]
    fn locks_that_are_waited_for_come_first_and_ends_are_counted_by_key() {
        let waited = json!({ "key": "slow", "waiters": 3, "waited": 700, "polls": 40 });
        let ends = [
            end("busy", 1, 10, "released"),
            end("busy", 2, 30, "expired"),
            end("busy", 1, 20, "released"),
            end("slow", 5, 8, "broken"),
        ];
        let found = contended(&[waited], &ends);
        let expected = json!([
            { "key": "slow", "waiters": 3, "waited": 700, "polls": 40, "holds": 1, "hold_p50": 8, "hold_p99": 8,
              "lost": 1, "clients": 1, "fairness": null },
            { "key": "busy", "waiters": 0, "waited": null, "polls": 0, "holds": 3, "hold_p50": 20, "hold_p99": 30,
              "lost": 1, "clients": 2, "fairness": 0.9 },
        ]);
        assert_eq!(Value::from(found), expected);
    }
}
