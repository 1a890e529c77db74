//! The rule of a fault: which requests it meets, at which of them it acts, and what it does.
//!
//! Rule    a rule is data. [`super::Faults`] applies it, and the shell carries its action out.

use std::fmt::{self, Display};

use bytes::Bytes;
use redlatch_core::scripts::{Known, Purpose, Sha, digest};
use redlatch_core::state::clients::Client;
use redlatch_core::types::glob;

/// Bytes of the longest pattern, and of the longest text of an error.
pub const FAULT_BYTES_MAX: usize = 1024;
/// Milliseconds that an action may last: a year.
pub const FAULT_MS_MAX: u64 = 365 * 86_400_000;
/// The largest number of NTH, EVERY and TIMES.
pub const FAULT_COUNT_MAX: u64 = 1_000_000_000;

/// A fault, as TEST.FAULT ADD describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The requests that it meets.
    pub conditions: Conditions,
    /// At which of these requests it acts.
    pub turn: Turn,
    /// How often it acts at most; `None`: without a limit.
    pub times: Option<u64>,
    /// What it does.
    pub action: Action,
}

/// The requests that a fault meets: those that fit all conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The command in lower case, `container|name` for a subcommand. A container stands for all its subcommands.
    pub command: Option<Box<str>>,
    /// A pattern for one of the keys.
    pub key: Option<Bytes>,
    /// The script that is run.
    pub script: Option<Script>,
    /// A pattern for the name, the library or the address of the client.
    pub client: Option<Bytes>,
    /// The number of the node.
    pub node: Option<u16>,
}

/// The scripts of a condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Script {
    /// Known scripts of this purpose, as [`purpose_name`] names it.
    For(&'static str),
    /// The script with this SHA-1, in lower case.
    Named(Sha),
}

/// At which of the requests that it meets a fault acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Turn {
    /// At every request.
    Each,
    /// At every n-th request.
    Every(u64),
    /// At the n-th request.
    Nth(u64),
    /// At this share of the requests. Equal seeds choose equal requests.
    Share {
        /// From 0 to 1.
        share: f64,
        /// What the choice depends on.
        seed: i64,
    },
}

/// What a fault does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// The request is carried out so many milliseconds later.
    Delay(u64),
    /// The request is carried out, and the connection is closed without the reply.
    DropAfter,
    /// The connection is closed in place of carrying out the request.
    DropBefore,
    /// The request is carried out twice. The second reply is the reply.
    Duplicate,
    /// This error is the reply, and the request is not carried out.
    Error(Bytes),
    /// The request is carried out. Then its keys end, as if their leases were over.
    ExpireKey,
    /// The request is carried out, and the connection is closed after half of the reply.
    HalfReply,
    /// The request is carried out and answered. Then the connection is neither read nor written for so many milliseconds.
    PauseClient(u64),
    /// The connection is reset in place of carrying out the request.
    Reset,
    /// The request is carried out, and answered so many milliseconds later.
    Stall(u64),
}

/// A request, as conditions see it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The command in lower case, `container|name` for a subcommand; empty if there is no such command.
    pub command: &'a str,
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// The script, if the request runs one.
    pub script: Option<AskedScript<'a>>,
}

/// How a request names the script that it runs.
#[derive(Clone, Copy, Debug)]
pub enum AskedScript<'a> {
    /// By its SHA-1, in any letter case.
    Sha(&'a [u8]),
    /// By its text.
    Text(&'a [u8]),
}

/// The names of all purposes that a condition may name.
pub const PURPOSES: &[&str] = &["acquire", "break", "extend", "inspect", "other", "release"];

/// The name of a purpose.
pub const fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Acquire(_) => "acquire",
        Purpose::Break => "break",
        Purpose::Extend => "extend",
        Purpose::Inspect => "inspect",
        Purpose::Other => "other",
        Purpose::Release => "release",
    }
}

impl Conditions {
    /// Whether any of these requests of a client of a node fits: EXEC comes with the requests that were queued for it.
    pub fn fit(&self, client: &Client, node: u16, requests: &[Asked<'_>]) -> bool {
        self.node.is_none_or(|wanted| wanted == node)
            && requests.iter().any(|request| self.fit_request(request))
            && self.client.as_ref().is_none_or(|pattern| client_fits(pattern, client))
    }

    fn fit_request(&self, request: &Asked<'_>) -> bool {
        self.command.as_ref().is_none_or(|name| is_command(name, request.command))
            && self
                .key
                .as_ref()
                .is_none_or(|pattern| request.keys.iter().any(|key| glob::matches(pattern, key)))
            && self.script.is_none_or(|script| request.script.is_some_and(|asked| script.fits(asked)))
    }
}

/// Whether a command is the wanted one, or one of its subcommands.
fn is_command(wanted: &str, command: &str) -> bool {
    command.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
}

/// Whether the name, the library or the address of a client matches a pattern.
pub fn client_fits(pattern: &[u8], client: &Client) -> bool {
    let names = client.names.lock();
    [&names.name, &names.library, &client.address.peer]
        .iter()
        .any(|text| glob::matches(pattern, text.as_bytes()))
}

impl Script {
    /// The scripts of this word: a SHA-1 in any letter case, or a purpose.
    pub fn of(word: &[u8]) -> Option<Self> {
        match sha(word) {
            Some(sha) => Some(Self::Named(sha)),
            None => {
                let purpose = PURPOSES.iter().find(|name| word.eq_ignore_ascii_case(name.as_bytes()));
                purpose.map(|name| Self::For(name))
            }
        }
    }

    fn fits(self, asked: AskedScript<'_>) -> bool {
        let asked = match asked {
            AskedScript::Sha(word) => sha(word),
            AskedScript::Text(text) => Some(digest(text)),
        };
        asked.is_some_and(|asked| match self {
            Self::Named(wanted) => wanted == asked,
            Self::For(purpose) => {
                Known::find(&asked).is_some_and(|known| purpose_name(known.purpose) == purpose)
            }
        })
    }
}

/// A SHA-1 in lower case, if the word is one.
fn sha(word: &[u8]) -> Option<Sha> {
    let sha: Sha = word.try_into().ok()?;
    sha.iter().all(u8::is_ascii_hexdigit).then(|| sha.map(|digit| digit.to_ascii_lowercase()))
}

impl Turn {
    /// Whether the fault acts at this request, the `met`th that it meets, counted from 1.
    pub fn comes(self, met: u64) -> bool {
        match self {
            Self::Each => true,
            Self::Every(every) => met.is_multiple_of(every),
            Self::Nth(nth) => met == nth,
            Self::Share { share, seed } => fraction(seed, met) < share,
        }
    }
}

/// A number from 0 up to 1 that depends on the seed and the place in the sequence alone: splitmix64.
fn fraction(seed: i64, place: u64) -> f64 {
    let mut bits = seed.cast_unsigned().wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    // The upper 53 bits are a whole number that a double holds exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// The words behind TEST.FAULT ADD.
impl Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conditions { command, key, script, client, node } = &self.conditions;
        if let Some(command) = command {
            write!(f, "COMMAND {} ", command.to_ascii_uppercase())?;
        }
        if let Some(pattern) = key {
            write!(f, "KEY {} ", Word(pattern))?;
        }
        match script {
            Some(Script::For(purpose)) => write!(f, "SCRIPT {purpose} ")?,
            Some(Script::Named(sha)) => write!(f, "SCRIPT {} ", Word(sha))?,
            None => {}
        }
        if let Some(pattern) = client {
            write!(f, "CLIENT {} ", Word(pattern))?;
        }
        if let Some(node) = node {
            write!(f, "NODE {node} ")?;
        }
        match self.turn {
            Turn::Each => {}
            Turn::Every(every) => write!(f, "EVERY {every} ")?,
            Turn::Nth(nth) => write!(f, "NTH {nth} ")?,
            Turn::Share { share, seed } => write!(f, "PROBABILITY {share} SEED {seed} ")?,
        }
        if let Some(times) = self.times {
            write!(f, "TIMES {times} ")?;
        }
        write!(f, "DO {}", self.action)
    }
}

impl Action {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Delay(_) => "DELAY",
            Self::DropAfter => "DROP-AFTER",
            Self::DropBefore => "DROP-BEFORE",
            Self::Duplicate => "DUPLICATE",
            Self::Error(_) => "ERROR",
            Self::ExpireKey => "EXPIRE-KEY",
            Self::HalfReply => "HALF-REPLY",
            Self::PauseClient(_) => "PAUSE-CLIENT",
            Self::Reset => "RESET",
            Self::Stall(_) => "STALL",
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Delay(millis) | Self::PauseClient(millis) | Self::Stall(millis) => write!(f, " {millis}"),
            Self::Error(text) => write!(f, " {}", Word(text)),
            _ => Ok(()),
        }
    }
}

/// A word as a client would type it: in quotes if it is not plain.
struct Word<'a>(&'a [u8]);

impl Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
        match std::str::from_utf8(self.0) {
            Ok(text) if !self.0.is_empty() && self.0.iter().all(is_plain) => f.write_str(text),
            _ => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}
