//! How often this client holds each reentrant lock: a request whose answer was lost has counted if the server
//! counts more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::dialect::Terms;

/// Key and owner.
type Id = (Vec<u8>, Vec<u8>);

/// The reentrant locks that the guards of one [`Locks`](super::Locks) hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<HashMap<Id, u64>>>);

/// A hold that counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    counts: Counts,
    id: Id,
}

impl Counts {
    /// Counts a hold, if the lock is reentrant.
    pub(crate) fn add(&self, terms: &Terms) -> Option<Counted> {
        let id = Self::id(terms)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default() += 1;
        Some(Counted { counts: self.clone(), id })
    }

    /// How often the owner holds the lock here.
    pub(crate) fn of(&self, terms: &Terms) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Self::id(terms).and_then(|id| counts.get(&id).copied()).unwrap_or(0)
    }

    fn id(terms: &Terms) -> Option<Id> {
        let key = terms.keys.first().filter(|_| terms.is_reentrant())?;
        Some((key.clone(), terms.owner.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.id);
            }
        }
    }
}
