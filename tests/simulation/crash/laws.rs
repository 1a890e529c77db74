//! What must hold when a server begins to serve.

use redlatch_core::journal::Mode;
use redlatch_core::journal::log::GRACE_MS;
use redlatch_core::journal::recovery::{Ending, Found, Resume};
use redlatch_core::keyspace::Keyspace;
use redlatch_proto::clock::Now;

use super::{End, Expected, LEASE_MS_MAX, World};
use crate::simulation::crash_clients::{Register, lost_hold};
use crate::simulation::parts::{grants, living, state_of};

impl World {
    /// Whether lock time, tokens and quarantine go on as the page says.
    pub(super) fn check_start(&self, found: &Found, resume: &Resume, read_ms: u64) -> Result<(), String> {
        let Expected { end, has_served, time_ms, quarantine_until, is_torn, is_rotten, .. } = &self.expected;
        let quarantine = resume.quarantine.map(|(until, _)| until);
        if quarantine.is_some_and(|until| until.millis_since(resume.now) > LEASE_MS_MAX + GRACE_MS) {
            return Err("the quarantine is too long".to_owned());
        }
        let Some(end) = end.filter(|_| *has_served) else { return Ok(()) };
        let (lock_ms, real_ms) = *time_ms;
        let exact_ms = lock_ms + (read_ms - real_ms);
        if resume.now.as_millis() > exact_ms && !is_rotten {
            return Err(format!("lock time is {:?}, ahead of {exact_ms}", resume.now));
        }
        let is_same_boot = self.boot.is_some() && self.boot == self.expected.boot;
        if *is_rotten {
            return Ok(());
        }
        if end <= End::Killed && is_same_boot && resume.now.as_millis() != exact_ms {
            return Err(format!("lock time is {:?}, not {exact_ms}", resume.now));
        }
        if self.mode == Mode::Memory {
            return Ok(());
        }
        if !resume.restores {
            return Err("nothing is restored".to_owned());
        }
        if found.ending == Ending::Damaged || (found.ending == Ending::Torn && !is_torn) {
            return Err("a journal counts as damaged that is not".to_owned());
        }
        let inherited = quarantine_until.filter(|until| *until > resume.now);
        let waits = match end {
            End::Stopped => false,
            End::Killed if is_same_boot => false,
            _ => self.mode != Mode::Always,
        };
        if !waits && quarantine != inherited {
            return Err(format!("the quarantine ends at {quarantine:?}, not at {inherited:?}"));
        }
        Ok(())
    }

    /// Whether everything is there that was acknowledged.
    pub(super) fn check_keys(&mut self, keyspace: &Keyspace, now: Now, restores: bool) -> Result<(), String> {
        if !restores || self.expected.is_rotten {
            self.told.forget_counts();
            let state = state_of(keyspace, now);
            for (who, client) in self.clients.iter_mut().enumerate() {
                (client.register, client.pending, client.removed) = Default::default();
                client.register = Register::found(&state, who);
            }
            return Ok(());
        }
        let (state, now_ms) = (state_of(keyspace, now), now.lock.as_millis());
        for (who, client) in self.clients.iter_mut().enumerate() {
            let value = Register::found(&state, who).value;
            let candidates = client.pending.into_iter().chain([client.register]).chain(client.removed);
            let found = candidates.into_iter().find(|register| register.at(now_ms) == value);
            let Some(found) = found else {
                return Err(format!("register {who} is {value:?}, not {client:?}"));
            };
            (client.register, client.pending, client.removed) = (found, None, None);
        }
        let now_ms = self.now_ms();
        if let Some(lost) = self.clients.iter().find_map(|client| lost_hold(client, &state, now_ms)) {
            return Err(lost);
        }
        let Some((before, granted)) = self.expected.state.take() else { return Ok(()) };
        let before = living(&before, now);
        if before != state {
            return Err(format!("the state was {before:?} and is {state:?}"));
        }
        let now_granted = grants(keyspace, now);
        let lives = |key: &(u16, Vec<u8>)| state.contains_key(key);
        if granted.iter().filter(|(key, _)| lives(key)).ne(now_granted.iter().filter(|(key, _)| lives(key))) {
            return Err(format!("the grants were {granted:?} and are {now_granted:?}"));
        }
        Ok(())
    }
}
