//! What must hold when a node begins to serve, and at the end of a run.

use redlatch_core::journal::recovery::{Ending, Found, Resume};
use redlatch_core::keyspace::Keyspace;
use redlatch_proto::clock::{Clock, Now};

use super::{BEGIN_MS, CLIENTS, Defect, GRANTLESS_MS_MAX, SILENCE_MS_MAX, World};
use crate::simulation::crash_clients::lost_hold;
use crate::simulation::linearizable;
use crate::simulation::parts::{State, living, state_of};

impl World {
    /// The laws at the beginning of a term.
    pub(super) fn check_start(
        &mut self,
        node: usize,
        (keyspace, now): (&Keyspace, Now),
        found: &Found,
        resume: &Resume,
    ) -> Result<(), String> {
        if matches!(found.ending, Ending::Torn | Ending::Damaged) {
            return Err("the log counts as damaged".to_owned());
        }
        if self.restores > 0 {
            return Ok(());
        }
        if resume.quarantine.is_some() {
            return Err("nobody waits in quarantine".to_owned());
        }
        let group = self.group_of(node);
        let clock = self.groups[group].clock.as_ref();
        let ahead = clock.map(|clock| clock.now().lock).filter(|before| resume.now > *before);
        if let Some(before) = ahead.filter(|_| self.defect == Defect::None) {
            return Err(format!("lock time is ahead of {before:?}"));
        }
        let state = state_of(keyspace, now);
        let clients = &self.clients[group * CLIENTS..][..CLIENTS];
        if let Some(lost) = clients.iter().find_map(|client| lost_hold(client, &state, self.now_ms())) {
            return Err(lost);
        }
        let state = without_sessions(state);
        match self.groups[group].state.take().map(|before| without_sessions(living(&before, now))) {
            Some(before) if before != state => Err(format!("the state was {before:?} and is {state:?}")),
            _ => Ok(()),
        }
    }

    /// The laws at the end of a run.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        for (number, group) in self.groups.iter().enumerate() {
            for (register, history) in group.histories.iter().enumerate().filter(|_| self.restores == 0) {
                let of = |why| format!("group {number}, shared:{register}: {why}");
                linearizable::check(history).map_err(of)?;
            }
            let silence_ms = self.now_ms() - group.answered_ms;
            // A canary must break more than this.
            if silence_ms > SILENCE_MS_MAX && self.defect == Defect::None {
                return Err(format!("group {number}: nobody was answered for {silence_ms} ms"));
            }
        }
        (0..self.groups.len()).try_for_each(|group| self.check_service(group))?;
        if self.restores > 0 && self.defect == Defect::None {
            let idle_ms = self.now_ms() - BEGIN_MS - self.stats.granted_ms;
            if idle_ms > GRANTLESS_MS_MAX {
                return Err(format!("nothing was granted for {idle_ms} ms"));
            }
        }
        Ok(())
    }
}

/// A state without the keys that may be locks of sessions: each leader gives them an end of its own. Beliefs in them are
/// checked for themselves.
fn without_sessions(mut state: State) -> State {
    state.retain(|(_, key), _| !key.starts_with(b"Native"));
    state
}
