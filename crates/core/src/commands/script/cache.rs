//! Scripts that clients have loaded, by the SHA-1 of their text.
//!
//! Owns    the cache. A script is parsed, or compiled if it is not native, once, before it enters.
//! Bounds  scripts that came by EVAL alone are evicted, the oldest first, when there are too many.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use dashmap::DashMap;
use parking_lot::Mutex;
use redlatch_proto::error::Refusal;

use crate::commands::row::Group;
use crate::commands::table;
use crate::scripts::native::Program;
use crate::scripts::{Flags as ScriptFlags, Header, Known, Sha, digest, header};
use crate::state::channels::shrink;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::types::heap;

/// A script that has been parsed.
#[derive(Debug)]
pub(in crate::commands) struct Script {
    /// The SHA-1 of its text.
    pub(in crate::commands) sha: Sha,
    /// Its native form, if it is native.
    pub(in crate::commands) program: Option<Program>,
    /// What the server knows of it, if a lock client is known to send it.
    pub(in crate::commands) known: Option<&'static Known>,
    /// The flags that its first line sets.
    pub(in crate::commands) flags: ScriptFlags,
    /// Whether its native form calls commands that scan whole values or send messages.
    pub(in crate::commands) scans_values: bool,
    /// Whether the interpreter has met a key in it that its request did not declare: it locks every shard from then on.
    pub(in crate::commands) asks_further: AtomicBool,
    text: Box<[u8]>,
    body: usize,
    /// Its memory beside its text, from the time on when it is in the cache.
    charge: OnceLock<Charge>,
}

impl Script {
    /// Parses a script; it is not compiled.
    ///
    /// # Errors
    /// The first line begins with `#!` and is malformed.
    pub(in crate::commands) fn read(text: &[u8]) -> Result<Self, Refusal> {
        let Header { flags, body } = header(text).map_err(Refusal::Quoted)?;
        let sha = digest(text);
        let text = Box::<[u8]>::from(text);
        let is_known = |command: &'static str| table().find(command.as_bytes()).is_some();
        let program = Program::read(&text[body..]).filter(|program| program.commands().all(is_known));
        let scans_values = program.as_ref().is_some_and(scans_values);
        let known = Known::find(&sha);
        let (asks_further, charge) = Default::default();
        Ok(Self { sha, program, known, flags, scans_values, asks_further, text, body, charge })
    }

    /// Bytes of memory beside its text.
    fn parsed_bytes(&self) -> usize {
        let places = [heap::in_table::<(Sha, Arc<Self>)>(), heap::in_table::<(u64, Arc<Self>)>()];
        let program = self.program.as_ref().map_or(0, Program::heap_bytes);
        places.into_iter().chain([size_of::<Self>(), program]).fold(0, usize::saturating_add)
    }

    /// Whether `text` is its text.
    pub(in crate::commands) fn has_text(&self, text: &[u8]) -> bool {
        *self.text == *text
    }

    /// The SHA-1 of its text, as text.
    pub(in crate::commands) fn hex(&self) -> &str {
        std::str::from_utf8(&self.sha).unwrap_or_default()
    }

    /// Whether its first line declares flags without `no-writes`.
    pub(in crate::commands) fn may_write(&self) -> bool {
        self.declared_writes() == Some(true)
    }

    /// Whether it may write, if its first line declares flags.
    pub(in crate::commands) fn declared_writes(&self) -> Option<bool> {
        Header { flags: self.flags, body: self.body }.may_write()
    }

    /// Whether its keys must be in one slot in cluster mode: its first line declares flags, without `allow-cross-slot-keys`.
    pub(in crate::commands) fn is_of_one_slot(&self) -> bool {
        self.body > 0 && !self.flags.allow_cross_slot_keys
    }

    /// The Lua code: its text without the first line, if that begins with `#!`.
    pub(in crate::commands) fn body(&self) -> &[u8] {
        &self.text[self.body..]
    }
}

/// Whether a script calls commands that scan whole values or send messages.
fn scans_values(program: &Program) -> bool {
    let scans = |command: &'static str| {
        let found = table().find(command.as_bytes());
        found.is_some_and(|command| command.is_measured || command.row.group == Group::PubSub)
    };
    program.has_named_commands() || program.commands().any(scans)
}

/// The scripts of one server.
#[derive(Debug)]
pub struct ScriptCache {
    scripts: DashMap<Sha, Arc<Script>, RandomState>,
    /// The scripts by a hash of their text, which costs EVAL a tenth of a SHA-1. Of two scripts with equal hashes one
    /// is missing.
    texts: DashMap<u64, Arc<Script>, RandomState>,
    /// Scripts that came by EVAL alone, the oldest first.
    evictable: Mutex<VecDeque<Sha>>,
    bytes: AtomicUsize,
    ledger: Arc<Ledger>,
}

/// Maximum number of scripts that came by EVAL alone, as in Redis 7.4.
const EVICTABLE_SCRIPTS_MAX: usize = 500;

impl ScriptCache {
    /// An empty cache. A random `seed` keeps clients from sending scripts whose hashes collide. What scripts take beside
    /// their texts is charged to `ledger`.
    pub fn new(seed: u64, ledger: &Arc<Ledger>) -> Self {
        let hasher = RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed.rotate_left(16));
        let ((evictable, bytes), ledger) = (Default::default(), Arc::clone(ledger));
        let (scripts, texts) = (DashMap::with_hasher(hasher.clone()), DashMap::with_hasher(hasher));
        Self { scripts, texts, evictable, bytes, ledger }
    }

    /// The script of that SHA-1.
    pub(in crate::commands) fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.scripts.get(sha).map(|script| Arc::clone(&script))
    }

    /// The script of that text.
    pub(in crate::commands) fn of_text(&self, text: &[u8]) -> Option<Arc<Script>> {
        // The guard is dropped before the other map is locked: `flush` locks the maps in the opposite order.
        let known = self.texts.get(&self.hash(text)).map(|script| Arc::clone(&script));
        known.filter(|script| script.has_text(text)).or_else(|| self.get(&digest(text)))
    }

    /// Whether a script of that SHA-1 is loaded: its digits may have either letter case.
    pub fn has(&self, digits: &[u8]) -> bool {
        self.find(digits).is_some()
    }

    /// The script of that SHA-1, whose digits a client sent in either letter case.
    pub(in crate::commands) fn find(&self, digits: &[u8]) -> Option<Arc<Script>> {
        let sha: &Sha = digits.try_into().ok()?;
        // Nearly all clients send the digits as they were told them.
        self.get(sha).or_else(|| {
            let mut sha = *sha;
            sha.make_ascii_lowercase();
            self.get(&sha)
        })
    }

    /// Adds a script that stays until SCRIPT FLUSH.
    pub(in crate::commands) fn insert_permanent(&self, script: &Arc<Script>) {
        self.evictable.lock().retain(|evictable| *evictable != script.sha);
        self.insert(script);
    }

    /// Adds a script that came by EVAL. It is evicted when there are too many newer ones.
    pub(in crate::commands) fn insert_evictable(&self, script: &Arc<Script>) {
        if !self.insert(script) {
            return;
        }
        let mut evictable = self.evictable.lock();
        evictable.push_back(script.sha);
        if evictable.len() > EVICTABLE_SCRIPTS_MAX
            && let Some(oldest) = evictable.pop_front()
        {
            self.scripts.remove(&oldest).iter().for_each(|(_, script)| self.uncount(script));
        }
    }

    pub fn flush(&self) {
        self.scripts.retain(|_, script| {
            self.uncount(script);
            false
        });
        shrink(&self.scripts);
        shrink(&self.texts);
        self.evictable.lock().clear();
    }

    /// How many scripts there are, and the bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        (self.scripts.len(), self.bytes())
    }

    /// Bytes of their texts.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Adds a script. Returns true if it is new.
    fn insert(&self, script: &Arc<Script>) -> bool {
        self.bytes.fetch_add(script.text.len(), Relaxed);
        script.charge.get_or_init(|| {
            let charge = self.ledger.open(Kind::Scripts);
            charge.set(script.parsed_bytes());
            charge
        });
        let known = self.scripts.insert(script.sha, Arc::clone(script));
        known.iter().for_each(|known| self.uncount(known));
        self.texts.insert(self.hash(&script.text), Arc::clone(script));
        known.is_none()
    }

    /// Removes a script, which has left the cache, from the counters and from the other map.
    fn uncount(&self, script: &Script) {
        self.bytes.fetch_sub(script.text.len(), Relaxed);
        self.texts.remove_if(&self.hash(&script.text), |_, known| known.sha == script.sha);
    }

    fn hash(&self, text: &[u8]) -> u64 {
        self.texts.hasher().hash_one(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return";

    #[test]
    fn scripts_that_came_by_eval_alone_are_bounded() {
        let cache = ScriptCache::new(7, &Arc::default());
        let read = |text: String| Arc::new(Script::read(text.as_bytes()).unwrap());
        let kept = read(format!("{RELEASE} 0"));
        cache.insert_permanent(&kept);
        for n in 0..2 * EVICTABLE_SCRIPTS_MAX {
            cache.insert_evictable(&read(format!("{RELEASE} 0 -- {n}")));
        }
        assert!(
            cache.texts.len() <= cache.scripts.len(),
            "a script that was removed is not found by its text"
        );
        let len = |n: usize| format!("{RELEASE} 0 -- {n}").len();
        let bytes: usize = (EVICTABLE_SCRIPTS_MAX..2 * EVICTABLE_SCRIPTS_MAX).map(len).sum();
        assert_eq!(cache.size(), (EVICTABLE_SCRIPTS_MAX + 1, bytes + RELEASE.len() + 2));
        assert!(cache.find(kept.hex().as_bytes()).is_some());
        for text in [format!("{RELEASE} 0"), format!("{RELEASE} 0 -- {}", 2 * EVICTABLE_SCRIPTS_MAX - 1)] {
            assert_eq!(cache.of_text(text.as_bytes()).unwrap().sha, digest(text.as_bytes()));
        }
        assert!(
            cache.of_text(format!("{RELEASE} 0 -- 0").as_bytes()).is_none(),
            "the oldest script is evicted"
        );
        cache.flush();
        assert!(cache.texts.is_empty());
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn a_script_is_found_by_forty_digits_in_either_case() {
        let cache = ScriptCache::new(7, &Arc::default());
        let text = "return 'known'";
        cache.insert_permanent(&Arc::new(Script::read(text.as_bytes()).unwrap()));
        let digits = "8e13ba5e1b5e1c0d";
        assert!(cache.find(digits.as_bytes()).is_none());
        let digits = str::from_utf8(&digest(text.as_bytes())).unwrap().to_owned();
        for known in [digits.clone(), digits.to_uppercase()] {
            assert!(cache.find(known.as_bytes()).is_some_and(|script| script.hex() == digits));
        }
        for unknown in
            [&digits[1..], &digits.replace(|digit: char| digit.is_ascii_digit(), "g"), &format!("{digits}0")]
        {
            assert!(cache.find(unknown.as_bytes()).is_none());
        }
    }
}
