//! The settings. Command line flags, environment, file, CONFIG GET / SET and `--help` all follow from one table.
//!
//! Owns    the rows and the values of one server.
//! Rule    a value is checked against its row before it is stored. Numbers and flags are read without a lock.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use redlatch_proto::limits::LOCK_PREFIXES_MAX;

use super::directives::Directives;
use super::output_limits::{self, OutputLimits};
use super::proposal::{Proposal, Validators};
use super::setting_value::{Value, number};
use crate::types::glob;

pub use super::setting_value::Handle;
pub use super::settings_table::*;

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name, as in redis.conf.
    pub name: &'static str,
    /// Its default, as text.
    pub default: &'static str,
    pub kind: Kind,
    /// Whether CONFIG SET may change it while the server runs.
    pub live: bool,
    /// What it does, in one sentence.
    pub help: &'static str,
}

/// Which values a setting accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Text,
    /// `yes` or `no`.
    Flag,
    /// `auto`, or the number of a TCP port; 0: none.
    Port,
    /// An integer from the first to the second, both included.
    Integer(i64, i64),
    /// Bytes, with an optional unit (`k`, `kb`, `m`, `mb`, `g`, `gb`), within bounds.
    Bytes(u64, u64),
    OneOf(&'static [&'static str]),
    /// Letters, digits, hyphens and dots, or nothing; also the colons of an IPv6 address if it says so.
    Host {
        has_colons: bool,
    },
    Events,
    /// Limits of unsent output, for some classes of clients or all.
    OutputLimits,
    /// At most [`LOCK_PREFIXES_MAX`] prefixes of keys, separated by spaces.
    Prefixes,
    /// Three numbers of one byte each, separated by dots.
    Version,
}

/// The version of Redis whose replies these are.
pub const REDIS_VERSION_DEFAULT: &str = "7.0.15";

/// The name of the group of locks whose keys have none of the listed prefixes.
pub(crate) const OTHER_PREFIX: &str = "other";

/// Why a value was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// No row has that name.
    #[error("unknown setting '{0}'")]
    Unknown(String),
    /// The value does not fit the row.
    #[error("{name} '{value}': {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: String,
        /// The error text of CONFIG SET.
        reply: String,
    },
    /// It can be set only at the start.
    #[error("{0} can be set only at the start")]
    Immutable(&'static str),
}

/// Bytes of the longest value.
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the longest host name, as in Redis.
const HOST_BYTES_MAX: usize = 255;

/// The default of `slowlog-log-slower-than`.
const SLOW_MICROS_DEFAULT: i64 = 10_000;

/// The values of one server's settings.
pub struct Settings {
    values: RwLock<Vec<String>>,
    /// The values of integers, bytes and flags, by the places of their rows; zero for others.
    numbers: [AtomicI64; ROWS.len()],
    /// Locked while values are validated and changed.
    changing: Mutex<()>,
    /// Which keyspace events are published; zero: none.
    events: AtomicU32,
    output_limits: Arc<OutputLimits>,
    /// Called after CONFIG SET has changed something.
    on_change: OnceLock<OnChange>,
    validators: Validators,
    /// Directives of redis.conf without an effect.
    pub directives: Directives,
}

type OnChange = Box<dyn Fn(&Settings) + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        let settings = Self {
            values: RwLock::new(ROWS.iter().map(|row| row.default.to_owned()).collect()),
            numbers: [const { AtomicI64::new(0) }; ROWS.len()],
            changing: Mutex::new(()),
            events: AtomicU32::new(0),
            output_limits: Arc::default(),
            on_change: OnceLock::new(),
            validators: Validators::default(),
            directives: Directives::default(),
        };
        settings.refresh();
        settings
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(values) = self.values.try_read() else { return f.write_str("Settings(locked)") };
        let named = ROWS.iter().map(|row| row.name).zip(values.iter());
        f.debug_map().entries(named.map(|(name, value)| (name, shown(name, value)))).finish()
    }
}

/// Settings whose values are secrets.
const SECRETS: [&str; 3] = ["cluster-etcd-password", "http-token", "requirepass"];

/// A value as it may appear in a log: passwords and tokens are hidden.
pub fn shown<'v>(name: &str, value: &'v str) -> &'v str {
    let is_secret = SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
    if is_secret && !value.is_empty() { "(hidden)" } else { value }
}

impl Settings {
    /// The row of that name or alias, in any letter case.
    pub fn row(name: &str) -> Option<&'static Setting> {
        find(name).ok().map(|(_, row)| row)
    }

    /// The name in the table for a name or alias in any letter case.
    pub(crate) fn known_name(name: &str) -> Option<&'static str> {
        find(name).ok().map(|(_, row)| row.name)
    }

    /// Sets a value before the server starts.
    ///
    /// # Errors
    /// [`SettingError`] when there is no such setting or the value does not fit it.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SettingError> {
        let (index, row) = find(name)?;
        let mut values = self.values.write();
        values[index] = row.kind.check(row.name, value, &values[index])?;
        drop(values);
        self.refresh();
        Ok(())
    }

    /// Sets values while the server runs, all or none.
    ///
    /// # Errors
    /// As [`Settings::set`], [`SettingError::Immutable`] for settings that can be set only at the start, and the errors of
    /// the validators: see [`Settings::on_proposal`].
    pub(crate) fn set_live(&self, pairs: &[(&str, &str)]) -> Result<(), SettingError> {
        let (mut indexes, mut checked) = (Vec::new(), Vec::with_capacity(pairs.len()));
        for (name, value) in pairs {
            let (index, row) = find(name)?;
            if !row.live {
                return Err(SettingError::Immutable(row.name));
            }
            let value = row.kind.check(row.name, value, &self.values.read()[index])?;
            indexes.push(index);
            checked.push((row.name, value));
        }
        let changing = self.changing.lock();
        self.validators.validate(&Proposal::new(self, &checked))?;
        let mut values = self.values.write();
        for (index, (_, value)) in indexes.into_iter().zip(checked) {
            values[index] = value;
        }
        drop(values);
        drop(changing);
        self.refresh();
        if let Some(hook) = self.on_change.get() {
            hook(self);
        }
        Ok(())
    }

    /// Calls `hook` whenever CONFIG SET has changed something: for state outside of the settings, like the log level. Only
    /// the first hook is kept.
    pub fn on_change(&self, hook: impl Fn(&Self) + Send + Sync + 'static) {
        let _ = self.on_change.set(Box::new(hook));
    }

    /// Calls `validator` before CONFIG SET changes anything: for values that must be tried out, like certificates. The
    /// validator added last is called first: validators without effects are added after those with effects.
    pub fn on_proposal(
        &self,
        validator: impl Fn(&Proposal<'_>) -> Result<(), SettingError> + Send + Sync + 'static,
    ) {
        self.validators.add(validator);
    }

    /// Calls `act` while no CONFIG SET can change anything.
    pub fn undisturbed<R>(&self, act: impl FnOnce(&Self) -> R) -> R {
        let _changing = self.changing.lock();
        act(self)
    }

    /// The value of a row of the table.
    #[inline]
    pub fn get<T: Value>(&self, handle: Handle<T>) -> T {
        let at = handle.place();
        T::read(|| self.numbers[at].load(Relaxed), || self.values.read()[at].clone())
    }

    /// The values of all rows as texts, in the order of the table.
    pub(super) fn texts(&self) -> Vec<String> {
        self.values.read().clone()
    }

    /// The version of Redis that clients and scripts are told.
    pub fn redis_version(&self) -> [u8; 3] {
        version(&self.get(REDIS_VERSION)).expect("a checked version")
    }

    /// Names and values of all rows that match one of the patterns, each once, in the order of the table.
    pub fn fitting(&self, patterns: &[&[u8]]) -> Vec<(&'static str, String)> {
        let values = self.values.read();
        let named = ROWS.iter().map(|row| row.name).zip(values.iter());
        let aliases = ALIASES.iter().filter_map(|(alias, name)| {
            let at = ROWS.iter().position(|row| row.name == *name)?;
            Some((*alias, &values[at]))
        });
        let fits = |name: &str| patterns.iter().any(|p| glob::matches_ignoring_case(p, name.as_bytes()));
        let found = named.chain(aliases).filter(|(name, _)| fits(name));
        found.map(|(name, value)| (name, value.clone())).collect()
    }

    /// Which keyspace events are published.
    #[inline]
    pub fn events(&self) -> Events {
        Events(self.events.load(Relaxed))
    }

    /// How many bytes may be unsent to a client.
    pub(crate) fn output_limits(&self) -> &Arc<OutputLimits> {
        &self.output_limits
    }

    /// Milliseconds after which other clients get BUSY while a script runs; `None`: never.
    #[inline]
    pub fn busy_millis(&self) -> Option<u64> {
        Some(self.get(BUSY_REPLY_THRESHOLD)).filter(|millis| *millis > 0)
    }

    /// Whether every call of every command is timed. Otherwise fast commands are sampled, because two readings of the
    /// clock cost a tenth of a GET. True when the slow log or the latency monitor asks for short durations.
    #[inline]
    pub(crate) fn measures_all(&self) -> bool {
        let slow_micros = self.get(SLOWLOG_LOG_SLOWER_THAN);
        (0..SLOW_MICROS_DEFAULT).contains(&slow_micros) || self.get(LATENCY_MONITOR_THRESHOLD) > 0
    }

    fn refresh(&self) {
        for ((row, value), kept) in ROWS.iter().zip(self.values.read().iter()).zip(&self.numbers) {
            kept.store(number(row.kind, value), Relaxed);
        }
        let events = Events::parse(&self.get(NOTIFY_KEYSPACE_EVENTS)).unwrap_or_default();
        self.events.store(events.with_locks(self.get(LOCK_LINT)).0, Relaxed);
        if let Ok(limits) = output_limits::parse(&self.get(CLIENT_OUTPUT_BUFFER_LIMIT), "") {
            self.output_limits.set(&limits);
        }
    }
}

/// Other names of rows: an old one of Redis, and those of Valkey since 8.1.
const ALIASES: &[(&str, &str)] = &[
    ("commandlog-execution-slower-than", "slowlog-log-slower-than"),
    ("commandlog-slow-execution-max-len", "slowlog-max-len"),
    ("lua-time-limit", "busy-reply-threshold"),
];

fn find(name: &str) -> Result<(usize, &'static Setting), SettingError> {
    let alias = ALIASES.iter().find(|(alias, _)| name.eq_ignore_ascii_case(alias));
    let name = alias.map_or(name, |(_, name)| name);
    let at = ROWS.iter().position(|row| row.name.eq_ignore_ascii_case(name));
    at.map(|at| (at, &ROWS[at])).ok_or_else(|| SettingError::Unknown(name.to_owned()))
}

impl Kind {
    /// Checks a value and returns it in its normal form.
    pub(super) fn check(
        self,
        name: &'static str,
        value: &str,
        current: &str,
    ) -> Result<String, SettingError> {
        let refuse = |expected: String, reply: String| {
            Err(SettingError::Value { name, value: value.to_owned(), expected, reply })
        };
        match self {
            _ if value.len() > VALUE_BYTES_MAX => refuse(
                format!("must be at most {VALUE_BYTES_MAX} bytes"),
                format!("argument must be at most {VALUE_BYTES_MAX} bytes"),
            ),
            Self::Text => Ok(value.to_owned()),
            Self::Flag => match value.to_ascii_lowercase().as_str() {
                flag @ ("yes" | "no") => Ok(flag.to_owned()),
                _ => refuse("must be yes or no".into(), "argument must be 'yes' or 'no'".into()),
            },
            Self::Port => match value.parse::<u16>() {
                Ok(number) => Ok(number.to_string()),
                Err(_) if value == "auto" => Ok(value.to_owned()),
                Err(_) => refuse(
                    "must be auto or an integer between 0 and 65535".into(),
                    "argument must be between 0 and 65535 inclusive".into(),
                ),
            },
            Self::Integer(min, max) => match redlatch_proto::number::integer(value.as_bytes()) {
                Some(number) if (min..=max).contains(&number) => Ok(number.to_string()),
                Some(_) => refuse(
                    format!("must be between {min} and {max}"),
                    format!("argument must be between {min} and {max} inclusive"),
                ),
                None => refuse(
                    format!("must be an integer between {min} and {max}"),
                    "argument couldn't be parsed into an integer".into(),
                ),
            },
            Self::Bytes(min, max) => match bytes(value) {
                Some(number) if (min..=max).contains(&number) => Ok(number.to_string()),
                Some(_) => refuse(
                    format!("must be between {min} and {max} bytes"),
                    format!("argument must be between {min} and {max} inclusive"),
                ),
                None => refuse(
                    format!("must be between {min} and {max} bytes, as in 512mb"),
                    "argument must be a memory value".into(),
                ),
            },
            Self::OneOf(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(value)) {
                Some(word) => Ok((*word).to_owned()),
                None => refuse(
                    format!("must be one of {}", words.join(", ")),
                    format!("argument(s) must be one of the following: {}", words.join(", ")),
                ),
            },
            Self::Host { has_colons } => {
                let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
                match value.bytes().all(|byte| is_of_host(byte) || (has_colons && byte == b':')) {
                    _ if value.len() > HOST_BYTES_MAX => {
                        let expected = format!("must be at most {HOST_BYTES_MAX} characters");
                        refuse(
                            expected,
                            format!("Hostnames must be less than {} characters", HOST_BYTES_MAX + 1),
                        )
                    }
                    true => Ok(value.to_owned()),
                    false if has_colons => refuse(
                        "must be an address".into(),
                        "argument must be an address or a host name".into(),
                    ),
                    false => refuse(
                        "must be letters, digits, hyphens and dots".into(),
                        "Hostnames may only contain alphanumeric characters, hyphens or dots".into(),
                    ),
                }
            }
            Self::Events => match Events::parse(value) {
                Some(events) => Ok(events.to_string()),
                None => refuse(
                    "must be letters out of KEg$lshzxetdmnA".into(),
                    "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into(),
                ),
            },
            Self::Prefixes => {
                let words: Vec<&str> = value.split_whitespace().collect();
                if words.len() <= LOCK_PREFIXES_MAX && !words.contains(&OTHER_PREFIX) {
                    return Ok(words.join(" "));
                }
                let expected =
                    format!("must be at most {LOCK_PREFIXES_MAX} words, and '{OTHER_PREFIX}' none of them");
                refuse(expected.clone(), format!("argument {expected}"))
            }
            Self::Version => match version(value) {
                Some(numbers) => Ok(numbers.map(|number| number.to_string()).join(".")),
                None => {
                    let expected = "must be three numbers up to 255, as in 7.0.15";
                    refuse(expected.into(), format!("argument {expected}"))
                }
            },
            Self::OutputLimits => match output_limits::parse(value, current) {
                Ok(limits) => Ok(output_limits::written(&limits)),
                Err(reply) => {
                    refuse("must be a class, bytes, bytes and seconds, and so on".into(), reply.into())
                }
            },
        }
    }
}

/// The numbers of a version: `7.0.15`.
fn version(value: &str) -> Option<[u8; 3]> {
    let numbers: Option<Vec<u8>> = value.split('.').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// A number of bytes: `512`, `64k` (thousands), `64kb` (1024), up to `gb`.
pub(super) fn bytes(value: &str) -> Option<u64> {
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit: u64 = match value[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    value[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

/// A set of keyspace event classes: the letters of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Events(u32);

/// Letters in the order in which Redis writes them back.
const EVENT_LETTERS: &[u8] = b"g$lshzxetdnKEm";
/// The letters of `A`: every class except `n` and `m`.
const EVENT_LETTERS_ALL: &[u8] = b"g$lshzxetd";

/// The bit of [`Events::with_names`], above those of the letters.
const NAMES: u32 = 1 << 31;
/// The bit of [`Events::with_locks`].
const LOCKS: u32 = 1 << 30;

impl Events {
    /// The set of these letters; `None` if one is unknown.
    pub fn parse(letters: &str) -> Option<Self> {
        let mut events = Self(0);
        for letter in letters.bytes() {
            let named: &[u8] = if letter == b'A' { EVENT_LETTERS_ALL } else { &[letter] };
            for letter in named {
                events.0 |= 1 << EVENT_LETTERS.iter().position(|known| known == letter)?;
            }
        }
        Some(events)
    }

    /// Whether the class of `letter` is in the set.
    pub fn has(self, letter: u8) -> bool {
        EVENT_LETTERS.iter().position(|known| *known == letter).is_some_and(|bit| self.0 & (1 << bit) != 0)
    }

    /// The set, and whether the name of every changed key is wanted: for CLIENT TRACKING BCAST.
    #[must_use]
    pub fn with_names(self, wanted: bool) -> Self {
        Self(self.0 | if wanted { NAMES } else { 0 })
    }

    /// The set, and whether every event of every lock is wanted: for LOCK.LINT.
    #[must_use]
    pub(crate) fn with_locks(self, wanted: bool) -> Self {
        Self(self.0 | if wanted { LOCKS } else { 0 })
    }

    /// Whether every event of every lock is wanted.
    #[inline]
    pub(crate) fn wants_locks(self) -> bool {
        self.0 & LOCKS != 0
    }

    /// Whether the name of every changed key is wanted.
    #[inline]
    pub(crate) fn wants_names(self) -> bool {
        self.0 & NAMES != 0
    }

    /// True if no events are published and no names are wanted.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Display for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = EVENT_LETTERS_ALL.iter().all(|letter| self.has(*letter));
        if all {
            f.write_str("A")?;
        }
        for letter in EVENT_LETTERS {
            if self.has(*letter) && !(all && EVENT_LETTERS_ALL.contains(letter)) {
                write!(f, "{}", char::from(*letter))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let settings = Settings::default();
        assert!(format!("{settings:?}").contains(r#""requirepass": """#));
        settings.set("requirepass", "open sesame").unwrap();
        settings.on_proposal(|proposal| {
            assert!(!format!("{proposal:?}").contains("sesame"), "{proposal:?}");
            Ok(())
        });
        settings.set_live(&[("requirepass", "close sesame")]).unwrap();
        let shown = format!("{settings:?}");
        assert!(!shown.contains("sesame") && shown.contains(r#""tcp-keepalive": "300""#), "{shown}");
    }

    #[test]
    fn every_default_fits_its_own_row() {
        for row in ROWS {
            let checked = row.kind.check(row.name, row.default, row.default);
            assert_eq!(checked.as_deref(), Ok(row.default), "{}", row.name);
        }
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_sentence() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.name != row.name), "{}: twice", row.name);
            assert!(row.help.ends_with('.'), "{}: says no sentence", row.name);
        }
    }

    #[test]
    fn every_handle_reads_its_own_row() {
        let settings = Settings::default();
        for (handle, name) in written() {
            assert_eq!(handle.to_ascii_lowercase().replace('_', "-"), name);
        }
        settings.set_live(&[("slowlog-log-slower-than", "-1"), ("maxmemory", "2kb")]).unwrap();
        settings.set_live(&[("lock-lint", "YES"), ("lock-deadlock", "warn")]).unwrap();
        assert_eq!((settings.get(SLOWLOG_LOG_SLOWER_THAN), settings.get(MAXMEMORY)), (-1, 2_048));
        assert_eq!((settings.get(LOCK_LINT), settings.get(LOCK_DEADLOCK).as_str()), (true, "warn"));
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let settings = Settings::default();
        let refused = settings.set_live(&[("maxclients", "7"), ("notify-keyspace-events", "Q")]);
        assert!(matches!(refused, Err(SettingError::Value { name: "notify-keyspace-events", .. })));
        assert_eq!(settings.get(MAXCLIENTS), 10_000);
    }

    #[test]
    fn a_version_is_three_numbers() {
        let settings = Settings::default();
        assert_eq!(settings.redis_version(), [7, 0, 15]);
        settings.set("redis-version", "8.04.0").unwrap();
        assert_eq!((settings.redis_version(), settings.get(REDIS_VERSION).as_str()), ([8, 4, 0], "8.4.0"));
        for bad in ["", "8", "8.4", "8.4.0.1", "8.4.256", "8.4.-1", "8.4.x", "8..0", "v8.4.0", " 8.4.0"] {
            assert!(settings.set("redis-version", bad).is_err(), "{bad}");
        }
        assert_eq!(settings.get(REDIS_VERSION), "8.4.0", "a refused value changes nothing");
    }

    #[test]
    fn event_letters_are_written_back_as_redis_writes_them() {
        for (letters, normal) in [("", ""), ("KEA", "AKE"), ("Ex", "xE"), ("Kg$lshzxetd", "AK"), ("Kn", "nK")]
        {
            assert_eq!(Events::parse(letters).unwrap().to_string(), normal);
        }
    }
}
