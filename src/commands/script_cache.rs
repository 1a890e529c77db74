//! Scripts that clients have loaded, by the SHA-1 of their text.
//!
//! Owns    the cache; a script is read and recognised once, when it enters.
//! Bounds  scripts that only EVAL brought leave again when there are too many of them, the oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::Mutex;
use sha1::{Digest, Sha1};

use super::table;
use crate::error::Refusal;
use crate::scripts::{Recognised, recognise};

/// The SHA-1 of a script's text.
pub(super) type Sha = [u8; 20];

/// A script that has been loaded.
#[derive(Debug)]
pub struct Script {
    /// The SHA-1 of its text in hexadecimal.
    pub hex: String,
    /// What it means.
    pub program: Recognised,
    bytes: usize,
}

/// The scripts of one server.
#[derive(Debug, Default)]
pub struct ScriptCache {
    scripts: DashMap<Sha, Arc<Script>>,
    /// Those that EVAL brought, in the order in which it did.
    passing: Mutex<VecDeque<Sha>>,
}

/// How many scripts EVAL may leave behind: as many as in Redis 7.4, which bounds them too.
const PASSING_SCRIPTS_MAX: usize = 500;

impl ScriptCache {
    /// The script of that SHA-1.
    pub fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        self.scripts.get(sha).map(|script| Arc::clone(&script))
    }

    /// Loads a script for good.
    ///
    /// # Errors
    /// A refusal that names its SHA-1 when it is not recognised.
    pub fn load(&self, text: &[u8]) -> Result<Arc<Script>, Refusal> {
        let sha = digest(text);
        self.passing.lock().retain(|passing| *passing != sha);
        self.enter(sha, text).map(|(script, _)| script)
    }

    /// Loads a script for a single call, and keeps it for a while.
    ///
    /// # Errors
    /// As [`ScriptCache::load`].
    pub fn pass(&self, text: &[u8]) -> Result<Arc<Script>, Refusal> {
        let sha = digest(text);
        let (script, is_new) = self.enter(sha, text)?;
        if is_new {
            let mut passing = self.passing.lock();
            passing.push_back(sha);
            if passing.len() > PASSING_SCRIPTS_MAX
                && let Some(oldest) = passing.pop_front()
            {
                self.scripts.remove(&oldest);
            }
        }
        Ok(script)
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        self.scripts.clear();
        self.passing.lock().clear();
    }

    /// How many scripts there are, and the bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        self.scripts.iter().fold((0, 0), |(count, bytes), script| (count + 1, bytes + script.bytes))
    }

    fn enter(&self, sha: Sha, text: &[u8]) -> Result<(Arc<Script>, bool), Refusal> {
        if let Some(script) = self.get(&sha) {
            return Ok((script, false));
        }
        let hex = hex(&sha);
        // What a script calls has to be there: some scripts of the table wait for commands to come.
        let is_known = |command: &'static str| table().find(command.as_bytes()).is_some();
        let program = recognise(text).filter(|program| program.commands().all(is_known));
        let program = program.ok_or_else(|| unrecognised(&hex))?;
        let script = Arc::new(Script { hex, program, bytes: text.len() });
        let is_new = self.scripts.insert(sha, Arc::clone(&script)).is_none();
        Ok((script, is_new))
    }
}

/// The SHA-1 of a script's text.
fn digest(text: &[u8]) -> Sha {
    Sha1::digest(text).into()
}

/// Twenty bytes out of forty hexadecimal digits, in either letter case.
pub(super) fn parse_sha(digits: &[u8]) -> Option<Sha> {
    let mut sha = Sha::default();
    if digits.len() != 2 * sha.len() {
        return None;
    }
    for (byte, pair) in sha.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
        *byte = (high? << 4 | low?) as u8;
    }
    Some(sha)
}

fn hex(sha: &Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One clear error for what would need an interpreter.
pub(super) fn unrecognised(hex: &str) -> Refusal {
    Refusal::said(format!(
        "ERR this server runs recognised scripts only, and not script {hex}: supported are the releases, extensions, \
         guarded reads and acquisitions of string locks that lock clients send"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return";

    #[test]
    fn scripts_that_only_eval_brought_are_bounded() {
        let cache = ScriptCache::default();
        let kept = cache.load(format!("{RELEASE} 0").as_bytes()).unwrap();
        for n in 0..2 * PASSING_SCRIPTS_MAX {
            cache.pass(format!("{RELEASE} 0 -- {n}").as_bytes()).unwrap();
        }
        assert_eq!(cache.size().0, PASSING_SCRIPTS_MAX + 1);
        assert!(cache.get(&parse_sha(kept.hex.as_bytes()).unwrap()).is_some());
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
