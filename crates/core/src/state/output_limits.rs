//! How many bytes may be unsent to a client: `client-output-buffer-limit`.
//!
//! Rule    a class has a hard limit, beyond which a client is dropped at once, and a soft limit, which a client may exceed
//!         for a time. Published messages and invalidations always fall under the class of subscribers, because the
//!         class of other clients has no limit by default.
//! Source  Redis 7.0 `config.c`, `updateClientOutputBufferLimit`: classes, order, error texts.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::metrics::Counter;

/// The class of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// All clients that are in no other class.
    Normal,
    /// A replica. There are none, but configurations name the class.
    Replica,
    Pubsub,
}

/// The limits of one class. Zero means no limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limit {
    /// Unsent bytes beyond which a client is dropped at once.
    pub hard_bytes: u64,
    /// Unsent bytes beyond which a client is dropped after [`Limit::soft_secs`].
    pub soft_bytes: u64,
    /// How long the soft limit may be exceeded, in seconds.
    pub soft_secs: u64,
}

/// The current limits of all classes, shared by the settings and the clients.
#[derive(Debug)]
pub struct OutputLimits {
    /// Three numbers for each class.
    numbers: [AtomicU64; 9],
    /// Clients dropped because of a limit.
    pub disconnections: Counter,
}

/// Redis' defaults, as CONFIG GET shows them.
pub(crate) const DEFAULT: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";

impl Limit {
    /// Whether this number of unsent bytes exceeds the hard limit.
    #[inline]
    pub(crate) fn is_broken_by(self, bytes: usize) -> bool {
        self.hard_bytes > 0 && bytes as u64 > self.hard_bytes
    }

    /// Whether this number of unsent bytes exceeds the soft limit.
    pub(crate) fn is_strained_by(self, bytes: usize) -> bool {
        self.soft_bytes > 0 && bytes as u64 > self.soft_bytes
    }
}

impl Class {
    const ALL: [Self; 3] = [Self::Normal, Self::Replica, Self::Pubsub];

    const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Replica => "slave",
            Self::Pubsub => "pubsub",
        }
    }

    fn of(name: &str) -> Option<Self> {
        let is_replica = name.eq_ignore_ascii_case("replica").then_some(Self::Replica);
        is_replica.or_else(|| Self::ALL.into_iter().find(|class| name.eq_ignore_ascii_case(class.name())))
    }
}

impl Default for OutputLimits {
    fn default() -> Self {
        let limits = Self { numbers: Default::default(), disconnections: Counter::default() };
        limits.set(&parse(DEFAULT, "").expect("the default is well formed"));
        limits
    }
}

impl OutputLimits {
    /// The limit of a class.
    #[inline]
    pub fn of(&self, class: Class) -> Limit {
        let number = |at: usize| self.numbers[3 * class as usize + at].load(Relaxed);
        Limit { hard_bytes: number(0), soft_bytes: number(1), soft_secs: number(2) }
    }

    pub fn set(&self, limits: &[Limit; 3]) {
        let numbers = limits.iter().flat_map(|limit| [limit.hard_bytes, limit.soft_bytes, limit.soft_secs]);
        self.numbers.iter().zip(numbers).for_each(|(kept, number)| kept.store(number, Relaxed));
    }
}

/// Parses limits: a class and three numbers, once or several times. Other classes keep their limits in `current`.
///
/// # Errors
/// The error text of CONFIG SET.
pub(crate) fn parse(text: &str, current: &str) -> Result<[Limit; 3], &'static str> {
    let mut limits = if current.is_empty() { <[Limit; 3]>::default() } else { parse(current, "")? };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    for group in words.chunks_exact(4) {
        let class =
            Class::of(group[0]).ok_or("Invalid client class specified in buffer limit configuration.")?;
        let wrong = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let bytes = |word| super::settings::bytes(word).ok_or(wrong);
        limits[class as usize] = Limit {
            hard_bytes: bytes(group[1])?,
            soft_bytes: bytes(group[2])?,
            soft_secs: group[3].parse::<u32>().map_err(|_| wrong)?.into(),
        };
    }
    Ok(limits)
}

/// All limits as CONFIG GET shows them.
pub(crate) fn written(limits: &[Limit; 3]) -> String {
    let mut text = String::new();
    for (class, limit) in Class::ALL.iter().zip(limits) {
        let gap = if text.is_empty() { "" } else { " " };
        let Limit { hard_bytes, soft_bytes, soft_secs } = limit;
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}{} {hard_bytes} {soft_bytes} {soft_secs}", class.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_classes_keep_their_limits() {
        let read = |text| parse(text, DEFAULT).map(|limits| written(&limits));
        assert_eq!(read("").as_deref(), Ok(DEFAULT));
        assert_eq!(
            read("NORMAL 1mb 2kb 3 replica 1 1 1").as_deref(),
            Ok("normal 1048576 2048 3 slave 1 1 1 pubsub 33554432 8388608 60")
        );
        for (text, reason) in [
            ("normal 1 2", "Wrong"),
            ("master 0 0 0", "Invalid"),
            ("normal 0 0 -1", "Error"),
            ("normal x 0 0", "Error"),
        ] {
            assert!(read(text).unwrap_err().starts_with(reason), "{text}");
        }
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let limit = Limit { hard_bytes: 10, soft_bytes: 0, soft_secs: 0 };
        assert!(limit.is_broken_by(11) && !limit.is_broken_by(10) && !limit.is_strained_by(usize::MAX));
    }
}
