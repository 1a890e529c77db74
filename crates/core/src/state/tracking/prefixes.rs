//! The prefixes of CLIENT TRACKING BCAST, and the clients of each.
//!
//! Rule    a look-up costs time proportional to the length of the key, however many prefixes there are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

use bytes::Bytes;

use crate::state::clients::ClientId;

/// The clients of each prefix.
#[derive(Debug, Default)]
pub(super) struct Prefixes(BTreeMap<Bytes, BTreeSet<ClientId>>);

impl Prefixes {
    /// Adds a client to a prefix; returns whether it is the prefix's first.
    pub(super) fn enter(&mut self, prefix: &Bytes, client: ClientId) -> bool {
        let clients = self.0.entry(prefix.clone()).or_default();
        clients.insert(client) && clients.len() == 1
    }

    pub(super) fn leave(&mut self, prefix: &Bytes, client: ClientId) {
        if let Some(clients) = self.0.get_mut(prefix) {
            clients.remove(&client);
            if clients.is_empty() {
                self.0.remove(prefix);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Visits each prefix of `key` and its clients, the longest prefix first.
    pub(super) fn of<'p>(&'p self, key: &[u8], mut visit: impl FnMut(&'p Bytes, &'p BTreeSet<ClientId>)) {
        // All prefixes of a key sort before it. The last entry up to some prefix of the key either is a prefix of the
        // key too, or shows how much of the key the next one can have at most.
        let mut rest = key;
        while let Some((entry, clients)) = self.0.range::<[u8], _>((Unbounded, Included(rest))).next_back() {
            let common = rest.iter().zip(entry).take_while(|(ours, theirs)| ours == theirs).count();
            if common == entry.len() {
                visit(entry, clients);
                if common == 0 {
                    break;
                }
                rest = &rest[..common - 1];
            } else {
                rest = &rest[..common];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(prefixes: &Prefixes, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        prefixes.of(key.as_bytes(), |prefix, _| found.push(String::from_utf8_lossy(prefix).into_owned()));
        found
    }

    #[test]
    fn every_prefix_of_a_key_is_found_and_nothing_else() {
        let names = ["", "a", "ab", "abc", "abd", "b", "ba", "lock:", "lock:1", "lock:11", "z"];
        // Every subset, so that no finding leans on another.
        for subset in 0_u32..1 << names.len() {
            let mut prefixes = Prefixes::default();
            let chosen: Vec<_> = names
                .iter()
                .enumerate()
                .filter(|(at, _)| subset & 1 << at != 0)
                .map(|(_, name)| *name)
                .collect();
            let all_new = chosen.iter().all(|name| prefixes.enter(&Bytes::from_static(name.as_bytes()), 1));
            assert!(all_new);
            for key in ["", "a", "abcd", "abd", "ac", "lock", "lock:1", "lock:12", "lock:111", "zz", "c"] {
                let mut expected: Vec<_> = chosen.iter().filter(|name| key.starts_with(**name)).collect();
                expected.reverse();
                assert_eq!(
                    found(&prefixes, key),
                    *expected.into_iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
                    "{chosen:?} of {key}"
                );
            }
        }
    }

    #[test]
    fn a_prefix_stays_as_long_as_it_has_a_client() {
        let (mut prefixes, name) = (Prefixes::default(), Bytes::from_static(b"a"));
        assert!(prefixes.enter(&name, 1));
        assert!(!prefixes.enter(&name, 1) && !prefixes.enter(&name, 2));
        prefixes.leave(&name, 1);
        assert_eq!((prefixes.len(), found(&prefixes, "ab")), (1, vec!["a".to_owned()]));
        prefixes.leave(&name, 2);
        prefixes.leave(&name, 2);
        assert_eq!((prefixes.len(), found(&prefixes, "ab")), (0, vec![]));
    }
}
