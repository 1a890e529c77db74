//! Scripts that clients have loaded, by the SHA-1 of their text.
//!
//! Owns    the cache; a script is read, and compiled where it is not plain, once, before it enters.
//! Bounds  scripts that only EVAL brought leave again when there are too many of them, the oldest first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ahash::RandomState;
use dashmap::DashMap;
use parking_lot::Mutex;
use sha1::{Digest, Sha1};

use super::table;
use crate::error::Refusal;
use crate::scripts::plain::Program;
use crate::scripts::{Flags as ScriptFlags, Header, header, may_run_long};

/// The SHA-1 of a script's text.
pub(super) type Sha = [u8; 20];
/// Hexadecimal digits of one.
pub(super) const SHA_DIGITS: usize = 2 * size_of::<Sha>();

/// A script that has been read.
#[derive(Debug)]
pub struct Script {
    /// The SHA-1 of its text.
    pub sha: Sha,
    /// The same in hexadecimal.
    pub hex: String,
    /// What it does, if it is plain.
    pub program: Option<Program>,
    /// What its first line says.
    pub flags: ScriptFlags,
    /// Whether it could take long where it is interpreted.
    pub may_run_long: bool,
    text: Box<[u8]>,
    body: usize,
}

impl Script {
    /// Reads a script; it is not compiled.
    ///
    /// # Errors
    /// For a first line that begins with `#!` and goes on wrongly.
    pub(super) fn read(text: &[u8]) -> Result<Self, Refusal> {
        let Header { flags, body } = header(text).map_err(Refusal::Quoted)?;
        let sha = digest(text);
        let (text, hex) = (Box::<[u8]>::from(text), hex(&sha));
        let is_known = |command: &'static str| table().find(command.as_bytes()).is_some();
        let may_run_long = may_run_long(&text[body..]);
        let program = Program::read(&text[body..]).filter(|program| program.commands().all(is_known));
        Ok(Self { sha, hex, program, flags, may_run_long, text, body })
    }

    /// Whether its first line says what it does, and not that it writes nothing.
    pub(super) fn may_write(&self) -> bool {
        self.says_it_writes() == Some(true)
    }

    /// Whether it may write, if its first line says what it does.
    pub(super) fn says_it_writes(&self) -> Option<bool> {
        Header { flags: self.flags, body: self.body }.may_write()
    }

    /// What is Lua of its text.
    #[cfg(feature = "lua")]
    pub(super) fn body(&self) -> &[u8] {
        &self.text[self.body..]
    }
}

/// The scripts of one server.
#[derive(Debug)]
pub struct ScriptCache {
    scripts: DashMap<Sha, Arc<Script>, RandomState>,
    /// Those that EVAL brought, in the order in which it did.
    passing: Mutex<VecDeque<Sha>>,
    bytes: AtomicUsize,
}

/// How many scripts EVAL may leave behind: as many as in Redis 7.4, which bounds them too.
const PASSING_SCRIPTS_MAX: usize = 500;

impl ScriptCache {
    /// An empty cache. What nobody can foresee of `seed` keeps clients from sending scripts that collide.
    pub fn new(seed: u64) -> Self {
        let hasher = RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed.rotate_left(16));
        let (passing, bytes) = Default::default();
        Self { scripts: DashMap::with_hasher(hasher), passing, bytes }
    }

    /// The script of that SHA-1.
    pub fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.scripts.get(sha).map(|script| Arc::clone(&script))
    }

    /// Keeps a script for good.
    pub(super) fn keep(&self, script: &Arc<Script>) {
        self.passing.lock().retain(|passing| *passing != script.sha);
        self.enter(script);
    }

    /// Keeps a script for a while: EVAL brought it.
    pub(super) fn pass(&self, script: &Arc<Script>) {
        if !self.enter(script) {
            return;
        }
        let mut passing = self.passing.lock();
        passing.push_back(script.sha);
        if passing.len() > PASSING_SCRIPTS_MAX
            && let Some(oldest) = passing.pop_front()
        {
            self.scripts.remove(&oldest).iter().for_each(|(_, script)| self.left(script));
        }
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        self.scripts.retain(|_, script| {
            self.left(script);
            false
        });
        self.passing.lock().clear();
    }

    /// How many scripts there are, and the bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        (self.scripts.len(), self.bytes())
    }

    /// Bytes of their texts.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// True when it was not there yet.
    fn enter(&self, script: &Arc<Script>) -> bool {
        self.bytes.fetch_add(script.text.len(), Relaxed);
        let known = self.scripts.insert(script.sha, Arc::clone(script));
        known.iter().for_each(|known| self.left(known));
        known.is_none()
    }

    /// A script is no longer there.
    fn left(&self, script: &Script) {
        self.bytes.fetch_sub(script.text.len(), Relaxed);
    }
}

/// The SHA-1 of a script's text.
pub(super) fn digest(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

/// Twenty bytes out of forty hexadecimal digits, in either letter case.
pub(super) fn parse_sha(digits: &[u8]) -> Option<Sha> {
    let digits: &[u8; SHA_DIGITS] = digits.try_into().ok()?;
    let (mut sha, mut all) = (Sha::default(), 0);
    for (byte, pair) in sha.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
        all |= high | low;
        *byte = high << 4 | low;
    }
    (all != NO_DIGIT).then_some(sha)
}

/// What each byte is worth as a hexadecimal digit: all bits for one that is none.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};
const NO_DIGIT: u8 = u8::MAX;

fn hex(sha: &Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return";

    #[test]
    fn scripts_that_only_eval_brought_are_bounded() {
        let cache = ScriptCache::new(7);
        let read = |text: String| Arc::new(Script::read(text.as_bytes()).unwrap());
        let kept = read(format!("{RELEASE} 0"));
        cache.keep(&kept);
        for n in 0..2 * PASSING_SCRIPTS_MAX {
            cache.pass(&read(format!("{RELEASE} 0 -- {n}")));
        }
        let len = |n: usize| format!("{RELEASE} 0 -- {n}").len();
        let bytes: usize = (PASSING_SCRIPTS_MAX..2 * PASSING_SCRIPTS_MAX).map(len).sum();
        assert_eq!(cache.size(), (PASSING_SCRIPTS_MAX + 1, bytes + RELEASE.len() + 2));
        assert!(cache.get(&parse_sha(kept.hex.as_bytes()).unwrap()).is_some());
        cache.flush();
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn a_sha_is_forty_digits_in_either_case() {
        let digits = "c3f8721cbb97f72bc19e972846bd7aaf91901658";
        let sha = parse_sha(digits.as_bytes()).unwrap();
        assert_eq!(hex(&sha), digits);
        assert_eq!(parse_sha(digits.to_uppercase().as_bytes()), Some(sha));
        assert_eq!(parse_sha(&digits.as_bytes()[1..]), None);
        assert_eq!(parse_sha(digits.replace('c', "g").as_bytes()), None);
    }
}
