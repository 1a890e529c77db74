//! LOCK.EXPLAIN: what has happened to a lock, in sentences for people.
//!
//! Owns    the wording. Times of day are those of UTC.
//! Rule    the first sentence is about now; those that follow go back in time.

use bytes::Bytes;
use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::duration::duration;
use redlatch_proto::error::Refusal;
use redlatch_proto::log_name::readable;

use super::{SINCE, fair};
use crate::commands::row::{Flags, Group, Row, key, text};
use crate::commands::{Call, Outcome, Shared};
use crate::keyspace::{HeldLock, LockHolder, Shown, Waiter};
use crate::locks::EndReason;
use crate::locks::{Excerpt, PastLock};
use crate::state::beside::INFERRED;
use crate::state::clients::ClientId;
use crate::types::lock::LockKind;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Lock, "LOCK.EXPLAIN", SINCE, explain)
    .summary("Says in sentences who holds a lock, who waits, and how earlier holders lost it.")
    .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::LINEAR))
    .args(&[key("key"), text("owner").after("OWNER").maybe()])];

/// Holders, and ends of earlier ones, that are told.
const SENTENCES_MAX: usize = 20;

fn explain(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let owner = match call.args.take("OWNER") {
        true => Some(call.args.word()?),
        false => None,
    };
    call.args.finish()?;

    let fair = fair::queue_of(call, name)?;
    let held = call.view.locks().held_key(name, Shown::First(usize::MAX));
    let past = call.view.locks().past(name);
    let (mut queue, mut line) = (Vec::new(), Vec::new());
    for waiter in call.view.queues().lock_waiters(name) {
        queue.extend(waiter.serve.asker().map(|asker| asker.owner.clone()));
        if line.len() < SENTENCES_MAX {
            line.extend(InLine::of(waiter, name));
        }
    }
    // Who waits in the queue of a fair lock polls it, too.
    let pollers = match fair.is_empty() {
        true => call.shared.registries.clients.polling(call.view.key_hash(name), call.now.lock).len(),
        false => 0,
    };
    queue.extend(fair);
    let teller = Teller { shared: call.shared, now: call.now, you: owner };
    let mut sentences = teller.holders(held.as_ref());
    if let Some(first) = sentences.first_mut() {
        first.push_str(&teller.waiting(&queue, (&line, held.as_ref()), pollers));
    }
    sentences.extend(teller.in_line(&line, held.as_ref()));
    sentences.extend(teller.ends(held.as_ref(), &past));
    sentences.extend(call.shared.beside.as_ref().map(|beside| {
        let ends = held.iter().flat_map(|held| &held.holders).filter_map(|holder| holder.deadline).min();
        let how = match beside.known(name, ends, call.now.lock) {
            INFERRED => "inferred, because it could not be read again",
            _ => "read",
        };
        let address = &beside.address;
        format!("{how} from {address}: times begin when a reading has seen them, ends are inferred")
    }));

    call.reply.array(sentences.len());
    sentences.iter().for_each(|sentence| call.reply.bulk(sentence.as_bytes()));
    Ok(Outcome::Replied)
}

/// A request in the queue.
struct InLine {
    /// Its owner and its priority.
    who: String,
    /// What it needs beside the key; empty: nothing.
    needs: String,
    /// The size of the semaphore of which it needs permits.
    limit: Option<u32>,
}

impl InLine {
    fn of(waiter: &Waiter, key: &[u8]) -> Option<Self> {
        let (asker, mode) = (waiter.serve.asker()?, waiter.mode_of(key)?);
        let priority = match asker.request.priority.level {
            0 => String::new(),
            level => format!(" with priority {level}"),
        };
        let of_lock = match mode.kind {
            LockKind::Permits(_) if mode.permits == 1 => Some("1 permit".to_owned()),
            LockKind::Permits(_) => Some(format!("{} permits", mode.permits)),
            LockKind::Shared => Some("a share".to_owned()),
            LockKind::Exclusive | LockKind::Reentrant => None,
        };
        let keys = waiter.wait.keys.len();
        let of_keys = match asker.request.any() {
            Some(any) => Some(format!("any {any} of {keys} keys")),
            None => (keys > 1).then(|| format!("all of {keys} keys")),
        };
        let needs: Vec<String> = of_lock.into_iter().chain(of_keys).collect();
        let who = readable(asker.owner) + &priority;
        Some(Self { who, needs: needs.join(", "), limit: mode.kind.limit() })
    }

    /// What keeps the request at this place waiting, if this one is the first in line. `need`: the word for what the
    /// first needs itself.
    fn before(&self, (place, need): (usize, &str), held: Option<&HeldLock>) -> String {
        let (who, needs) = (&self.who, &self.needs);
        let mut text = match (place, needs.is_empty()) {
            (0, true) => String::new(),
            (0, false) => format!("{need} {needs}"),
            (_, true) => format!(", behind {who}"),
            (_, false) => format!(", behind {who}, which needs {needs}"),
        };
        let limit = held.map_or(self.limit, |held| held.kind.limit());
        if let (Some(_), Some(limit)) = (self.limit, limit) {
            let taken = held.iter().flat_map(|held| &held.holders).map(|holder| holder.permits);
            match taken.fold(limit, u32::saturating_sub) {
                1 => text.push_str("; 1 is free"),
                free => text.push_str(&format!("; {free} are free")),
            }
        }
        text
    }
}

/// Words facts for one reader.
struct Teller<'c> {
    shared: &'c Shared,
    now: Now,
    /// The owner that asks.
    you: Option<&'c [u8]>,
}

impl Teller<'_> {
    /// Who holds the lock.
    fn holders(&self, held: Option<&HeldLock>) -> Vec<String> {
        match held {
            None => vec!["free: nobody holds it".to_owned()],
            Some(HeldLock { value_type: Some(value_type), holders, .. }) => {
                holders.iter().map(|one| self.value(value_type, one)).collect()
            }
            Some(held) => {
                held.holders.iter().take(SENTENCES_MAX).map(|one| self.holder(held.kind, one)).collect()
            }
        }
    }

    fn holder(&self, kind: LockKind, holder: &LockHolder) -> String {
        let owner = holder.owner.as_deref();
        let who = match owner {
            Some(owner) if self.is_you(owner) => "you".to_owned(),
            Some(owner) => readable(owner),
            None => "a value that names no owner".to_owned(),
        };
        let how = match kind {
            LockKind::Exclusive => String::new(),
            LockKind::Permits(limit) => format!(", {} of {limit} permits", holder.permits),
            LockKind::Reentrant => format!(", taken {}", times(holder.permits)),
            LockKind::Shared => ", shared".to_owned(),
        };
        let since = holder.since.map_or_else(String::new, |since| format!(" since {}", self.clock(since)));
        let lease = self.lease(holder);
        let renewed = holder.deadline.map(|_| format!(", renewed {}", times(holder.renewals)));
        let renewed = renewed.unwrap_or_default();
        format!("held by {who} ({}){since}{how}, {lease}{renewed}", self.client(holder.client))
    }

    /// A value that was not taken as a lock.
    fn value(&self, value_type: &str, holder: &LockHolder) -> String {
        let value =
            holder.owner.as_ref().map(|value| format!(" with the value {}", excerpt(&Excerpt::of(value))));
        let (value, lease) = (value.unwrap_or_default(), self.lease(holder));
        format!("held by an unknown owner: not a lock, but a {value_type}{value}, {lease}")
    }

    fn lease(&self, holder: &LockHolder) -> String {
        match holder.deadline {
            Some(deadline) => {
                format!("lease ends in {}", duration(self.now.millis_until(deadline).unsigned_abs()))
            }
            None if holder.is_of_session => "until its connection ends".to_owned(),
            None => "without a lease".to_owned(),
        }
    }

    /// Who waits, as the end of a sentence.
    fn waiting(
        &self,
        queue: &[Bytes],
        (line, held): (&[InLine], Option<&HeldLock>),
        pollers: usize,
    ) -> String {
        let mut text = match queue.iter().position(|owner| self.is_you(owner)) {
            Some(place) => {
                let first = line.first();
                let behind = first.map(|first| first.before((place, " and need"), held)).unwrap_or_default();
                format!("; you are {} in line{behind}", ordinal(place))
            }
            None if queue.is_empty() => String::new(),
            None => format!("; {} in line", queue.len()),
        };
        if pollers > 0 {
            text.push_str(&format!("; {pollers} polling"));
        }
        text
    }

    /// Each request that waits, for those who do not ask as one of them.
    fn in_line(&self, line: &[InLine], held: Option<&HeldLock>) -> Vec<String> {
        let Some(first) = line.first().filter(|_| self.you.is_none()) else { return Vec::new() };
        let told = line.iter().enumerate().map(|(place, InLine { who, needs, .. })| {
            let needs =
                if needs.is_empty() || place == 0 { String::new() } else { format!(", needs {needs}") };
            format!("{} in line: {who}{needs}{}", ordinal(place), first.before((place, ", needs"), held))
        });
        told.collect()
    }

    /// How earlier holders have lost or released the lock, the newest first.
    fn ends(&self, held: Option<&HeldLock>, past: &[PastLock]) -> Vec<String> {
        let is_told = |ended: &&PastLock| match self.you {
            Some(you) => ended.is_of(you),
            None => true,
        };
        // The next holder is the first one whose grant is not older than that end.
        let mut grants: Vec<(LockTime, u64, String)> = Vec::new();
        for holder in held.iter().flat_map(|held| &held.holders) {
            if let (Some(since), Some(token), Some(owner)) = (holder.since, holder.token, &holder.owner) {
                grants.push((since, token, excerpt(&Excerpt::of(owner))));
            }
        }
        for ended in past {
            grants.extend(ended.owner.map(|owner| (ended.since, ended.token, excerpt(&owner))));
        }
        let next = |ended: &PastLock| {
            let later = grants.iter().filter(|grant| grant.0 >= ended.ended && grant.1 > ended.token);
            later.min().map(|(.., owner)| owner)
        };
        let told = past.iter().filter(is_told).take(SENTENCES_MAX);
        told.map(|ended| self.end(ended, next(ended))).collect()
    }

    fn end(&self, ended: &PastLock, next: Option<&String>) -> String {
        let at = self.clock_to_millis(ended.ended);
        let owner = ended.owner.map_or_else(|| "its holder".to_owned(), |owner| excerpt(&owner));
        let is_yours = self.you.is_some();
        let of =
            if is_yours { String::new() } else { format!(" of {owner} ({})", self.client(ended.holder)) };
        let mut text = match ended.reason {
            EndReason::Expired => {
                let lease =
                    ended.lease_ms.map_or_else(String::new, |millis| format!(" of {}", duration(millis)));
                format!("lost: the lease{lease}{of} ended at {at}")
            }
            EndReason::Deleted => {
                format!(
                    "lost: the key{of} was deleted or overwritten at {at} by {}",
                    self.client(ended.author)
                )
            }
            EndReason::Broken => {
                format!("lost: the lock{of} was broken at {at} by {}", self.breaker(ended))
            }
            EndReason::Flushed => {
                format!("lost: the keys{of} were all flushed at {at} by {}", self.client(ended.author))
            }
            EndReason::Moved => format!("moved{of} with its slot to another node at {at}"),
            EndReason::Session => format!("lost: the session{of} ended at {at}"),
            EndReason::Transferred => {
                format!("transferred: the lock{of} was handed over at {at} by {}", self.client(ended.author))
            }
            EndReason::Released => {
                let held = duration(ended.ended.millis_since(ended.since));
                let who = if is_yours { "you".to_owned() } else { owner };
                format!("released by {who} at {at}, after {held}")
            }
        };
        if let Some((request, late)) = ended.late {
            let behind = duration(late.millis_since(ended.ended));
            let whose = if is_yours { "your" } else { "its" };
            text.push_str(&format!(", {behind} before {whose} {request}"));
        }
        if let Some(next) = next {
            text.push_str(&format!("; next holder {next}"));
        }
        text
    }

    /// Who has broken a lock, and why: the client as far as it is known, for it may be gone.
    fn breaker(&self, ended: &PastLock) -> String {
        let Some(breaker) = &ended.breaker else { return self.client(ended.author) };
        let client = match self.shared.registries.clients.get(ended.author) {
            Some(_) => self.client(ended.author),
            None => breaker.peer.to_string(),
        };
        let from = if client.is_empty() { String::new() } else { format!(" from {client}") };
        let said = breaker.text.as_ref().map(|text| format!(": {}", readable(text)));
        format!("{}{from}{}", readable(&breaker.user), said.unwrap_or_default())
    }

    fn is_you(&self, owner: &[u8]) -> bool {
        self.you == Some(owner)
    }

    /// A client: its library and address, as far as they are known.
    fn client(&self, id: ClientId) -> String {
        if id == 0 {
            return "an unknown client".to_owned();
        }
        let Some(client) = self.shared.registries.clients.get(id) else {
            return format!("client {id}, gone");
        };
        let names = client.names.lock().clone();
        let library = format!("{} {}", names.library, names.library_version);
        let known = [names.name.as_str(), library.trim(), client.address.peer.as_str()];
        let known: Vec<&str> = known.into_iter().filter(|part| !part.is_empty()).collect();
        if known.is_empty() { format!("client {id}") } else { known.join(", ") }
    }

    /// The time of day, in seconds.
    fn clock(&self, time: LockTime) -> String {
        let secs = self.wall_ms(time) / 1000 % 86_400;
        format!("{:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
    }

    fn clock_to_millis(&self, time: LockTime) -> String {
        format!("{}.{:03}", self.clock(time), self.wall_ms(time) % 1000)
    }

    fn wall_ms(&self, time: LockTime) -> u64 {
        Now { lock: time, ..self.now }.wall().as_millis()
    }
}

fn excerpt(owner: &Excerpt) -> String {
    format!("{}{}", readable(owner.bytes()), if owner.is_whole() { "" } else { "..." })
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// The ordinal of a place that counts from 0.
fn ordinal(place: usize) -> String {
    const WORDS: [&str; 10] =
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
    let number = || format!("number {}", place.saturating_add(1));
    WORDS.get(place).map_or_else(number, |word| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_counts_are_worded_for_people() {
        assert_eq!([0, 2, 9, 10].map(ordinal), ["first", "third", "tenth", "number 11"]);
        assert_eq!([0, 1, 2, 3].map(times), ["0 times", "once", "twice", "3 times"]);
    }
}
