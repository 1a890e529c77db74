//! The plan of a load: what clients do, how many of them, for how long, and the bounds of each number.
//!
//! Rule    every parser takes the text of one flag, and its error says what the text must look like.

use std::time::Duration;

use redlatch_client::Trust;
use redlatch_client::wire::Target;
use redlatch_proto::lock::LEASE_DEFAULT;

/// Clients at most: each has a connection, and a machine has some 28,000 ports for one address.
pub(super) const CLIENTS_MAX: usize = 20_000;
/// Keys at most: what is known of a key takes about a hundred bytes.
pub(super) const KEYS_MAX: usize = 1_000_000;
/// Nodes of Redlock at most.
pub(super) const NODES_MAX: usize = 15;
pub(super) const THREADS_MAX: usize = 64;
/// Acquisitions begun in a second at least, in an open loop: one in a quarter of an hour.
pub(super) const RATE_MIN: f64 = 0.001;
/// Acquisitions begun in a second at most, in an open loop.
pub(super) const RATE_MAX: f64 = 1_000_000.0;
/// How long a load lasts at most: the report has a figure for each second.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest lease, hold, wait or pause.
pub(super) const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest lease: below it a lock ends while its grant travels.
pub(super) const LEASE_MIN: Duration = Duration::from_millis(10);
/// Bytes of a key at most.
pub(super) const KEY_BYTES_MAX: usize = 1024;
/// The exponent of a Zipf distribution at most: at 10 the first key has all but a thousandth.
pub(super) const EXPONENT_MAX: f64 = 10.0;

#[derive(Clone, Debug)]
pub struct Plan {
    /// The server; for [`Dialect::Redlock`] all nodes, else one.
    pub nodes: Vec<Node>,
    /// How a client takes a lock.
    pub dialect: Dialect,
    /// Clients, each with a connection of its own to each node. 1 to `CLIENTS_MAX`; default 50.
    pub clients: usize,
    /// Threads that the clients are shared out to. 1 to `THREADS_MAX`; default 1.
    pub threads: usize,
    /// Which locks are taken. Default: one of 1,000, all equally often.
    pub keys: Keys,
    /// How long a client keeps a lock. Default: not at all.
    pub hold: Hold,
    /// The lease of a lock, which is not extended. `LEASE_MIN` to `TIME_MAX`; default 30 s.
    pub lease: Duration,
    /// How long a client waits for a lock before it gives up. Default: without a limit.
    pub wait: Option<Duration>,
    /// The mean pause of a client that asks again and again. A pause is between half and one and a half of it. Default 20 ms.
    pub poll: Duration,
    /// Acquisitions begun in a second, by all clients together. `None`: each client begins the next when it has released
    /// the last.
    pub rate: Option<f64>,
    /// After this nothing new is begun. At most `DURATION_MAX`; default 10 s.
    pub duration: Duration,
    /// After so many acquisitions in all nothing new is begun. Default: no limit.
    pub count: Option<u64>,
    /// So many acquisitions each client makes. Default: no limit.
    pub count_each: Option<u64>,
    /// The seed of all draws. Default: another one in each run.
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) target: Target,
    pub(crate) trust: Trust,
}

impl Node {
    /// The server behind a URL: `redis[s]://[[user]:password@]host[:port][/db]` or `unix:///path`.
    ///
    /// # Errors
    /// The text is no such URL.
    pub fn new(url: &str, trust: Trust) -> Result<Self, String> {
        let target = Target::parse(url).map_err(|error| error.to_string())?;
        Ok(Self { target, trust })
    }
}

impl Plan {
    /// The defaults, for these nodes.
    pub fn new(nodes: Vec<Node>) -> Self {
        Self {
            nodes,
            dialect: Dialect::String,
            clients: 50,
            threads: 1,
            keys: Keys::Uniform { count: 1_000 },
            hold: Hold::Constant(Duration::ZERO),
            lease: LEASE_DEFAULT,
            wait: None,
            poll: Duration::from_millis(20),
            rate: None,
            duration: Duration::from_secs(10),
            count: None,
            count_each: None,
            seed: 1,
        }
    }

    /// Checks what no single flag can.
    ///
    /// # Errors
    /// Numbers out of bounds, or options that do not fit together.
    pub fn check(&self) -> Result<(), String> {
        let bound = |what: &str, value: usize, max: usize| match (1..=max).contains(&value) {
            true => Ok(()),
            false => Err(format!("{what} {value}: must be 1 to {max}")),
        };
        bound("--clients", self.clients, CLIENTS_MAX)?;
        bound("--threads", self.threads, THREADS_MAX)?;
        bound("--nodes", self.nodes.len(), NODES_MAX)?;
        if self.clients < self.threads {
            return Err(format!("--threads {}: more than --clients {}", self.threads, self.clients));
        }
        if !(LEASE_MIN..=TIME_MAX).contains(&self.lease) {
            return Err(format!("--lease {:?}: must be {LEASE_MIN:?} to {TIME_MAX:?}", self.lease));
        }
        if self.duration.is_zero() || self.duration > DURATION_MAX {
            return Err(format!("--duration {:?}: must be above 0, and at most 24h", self.duration));
        }
        if self.poll.is_zero() || self.poll > TIME_MAX || self.wait.is_some_and(|wait| wait > TIME_MAX) {
            return Err("--poll and --wait: must be at most 24h, and --poll above 0".to_owned());
        }
        match (self.dialect, self.nodes.len()) {
            (Dialect::Redlock, _) | (_, 1) => Ok(()),
            (dialect, _) => Err(format!("--nodes: the dialect {} asks one server", dialect.name())),
        }
    }
}

/// How a client takes a lock, waits for it and releases it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// The lock is an element of a list: BLPOP takes it, RPUSH gives it back. A client that crashes takes it along.
    List,
    /// LOCK.ACQUIRE with WAIT, and LOCK.RELEASE.
    Native,
    /// A hash that a script takes and releases. A client that waits subscribes to a channel, to which the release publishes.
    Redisson,
    /// Like `String`, on more than half of several servers.
    Redlock,
    /// SET NX PX, asked again and again, and a script that compares and deletes.
    String,
}

impl Dialect {
    pub const ALL: [Self; 5] = [Self::String, Self::Redlock, Self::Redisson, Self::Native, Self::List];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Native => "native",
            Self::Redisson => "redisson",
            Self::Redlock => "redlock",
            Self::String => "string",
        }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// No dialect has that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.name() == text);
        found.ok_or_else(|| "must be string, redlock, redisson, native or list".to_owned())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Keys {
    One(String),
    /// One of `count`, each equally often.
    Uniform {
        /// How many keys there are. 1 to `KEYS_MAX`.
        count: usize,
    },
    /// One of `count`; the n-th is taken in proportion to 1 / n^exponent.
    Zipf {
        /// 0 to `EXPONENT_MAX`; at 0 all are taken equally often.
        exponent: f64,
        /// How many keys there are. 1 to `KEYS_MAX`.
        count: usize,
    },
}

impl Keys {
    /// Reads `uniform:COUNT`, `zipf:EXPONENT:COUNT`, or a key.
    ///
    /// # Errors
    /// Numbers that are none or out of bounds, or a key that is empty or too long.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || "must be KEY, uniform:COUNT or zipf:EXPONENT:COUNT, as in zipf:1.1:1000".to_owned();
        let count = |text: &str| match text.parse::<usize>().map_err(|_| expected())? {
            count @ 1..=KEYS_MAX => Ok(count),
            _ => Err(format!("the count of keys must be 1 to {KEYS_MAX}")),
        };
        match text.split(':').collect::<Vec<_>>()[..] {
            ["uniform", number] => Ok(Self::Uniform { count: count(number)? }),
            ["zipf", exponent, number] => {
                let exponent = exponent.parse::<f64>().map_err(|_| expected())?;
                if !(0.0..=EXPONENT_MAX).contains(&exponent) {
                    return Err(format!("the exponent must be 0 to {EXPONENT_MAX}"));
                }
                Ok(Self::Zipf { exponent, count: count(number)? })
            }
            ["uniform" | "zipf", ..] => Err(expected()),
            _ if text.is_empty() || text.len() > KEY_BYTES_MAX => {
                Err(format!("a key must have 1 to {KEY_BYTES_MAX} bytes"))
            }
            _ => Ok(Self::One(text.to_owned())),
        }
    }

    pub fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Uniform { count } | Self::Zipf { count, .. } => *count,
        }
    }

    /// The n-th of them, from 0.
    pub fn name(&self, n: usize) -> String {
        match self {
            Self::One(key) => key.clone(),
            _ => format!("load:{n}"),
        }
    }

    /// As [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        match self {
            Self::One(key) => key.clone(),
            Self::Uniform { count } => format!("uniform:{count}"),
            Self::Zipf { exponent, count } => format!("zipf:{exponent}:{count}"),
        }
    }
}

/// How long a client keeps a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hold {
    /// Always so long.
    Constant(Duration),
    /// Exponentially distributed, with this mean. At most ten times the mean.
    Exponential(Duration),
    /// Any time from the first to the second, equally often.
    Uniform(Duration, Duration),
}

impl Hold {
    /// Reads `const:TIME`, `exp:TIME` or `uniform:TIME:TIME`; a bare time is a constant one.
    ///
    /// # Errors
    /// The text is none of these, or a time is too long.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split(':').collect::<Vec<_>>()[..] {
            [hold] | ["const", hold] => time(hold).map(Self::Constant),
            ["exp", mean] => time(mean).map(Self::Exponential),
            ["uniform", least, most] => match (time(least)?, time(most)?) {
                (least, most) if least <= most => Ok(Self::Uniform(least, most)),
                _ => Err("the first time must not be above the second".to_owned()),
            },
            _ => Err("must be const:TIME, exp:TIME or uniform:TIME:TIME, as in exp:5ms".to_owned()),
        }
    }

    /// As [`Self::parse`] reads it.
    pub fn text(self) -> String {
        match self {
            Self::Constant(hold) => format!("const:{}", written(hold)),
            Self::Exponential(mean) => format!("exp:{}", written(mean)),
            Self::Uniform(least, most) => format!("uniform:{}:{}", written(least), written(most)),
        }
    }
}

/// A time as [`time`] reads it.
fn written(time: Duration) -> String {
    match time.as_nanos() {
        0 => "0s".to_owned(),
        nanos if nanos % 1_000_000_000 == 0 => format!("{}s", time.as_secs()),
        nanos if nanos % 1_000_000 == 0 => format!("{}ms", time.as_millis()),
        nanos => format!("{}us", nanos as f64 / 1e3),
    }
}

/// Reads a time: a number, also with a fraction, and a unit: `100us`, `5ms`, `1.5s`, `2m`, `1h`. A bare number is in seconds.
///
/// # Errors
/// The text is no time, or one above `TIME_MAX`.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().map_or(f64::NAN, |number| number * unit);
    match seconds {
        _ if !seconds.is_finite() => Err("must be a time such as 100us, 5ms, 1.5s or 2m".to_owned()),
        _ if seconds > TIME_MAX.as_secs_f64() => Err("a time must be at most 24h".to_owned()),
        // Whole nanoseconds, so that 100us is 100 us.
        _ => Ok(Duration::from_nanos((seconds * 1e9).round() as u64)),
    }
}

/// Reads a rate: acquisitions in a second, as `5000` or `5000/s`.
///
/// # Errors
/// The text is no number, or one that is not `RATE_MIN` to `RATE_MAX`.
pub fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse::<f64>();
    let number =
        number.map_err(|_| "must be a number of acquisitions in a second, as in 5000/s".to_owned())?;
    match (RATE_MIN..=RATE_MAX).contains(&number) {
        true => Ok(number),
        false => Err(format!("must be {RATE_MIN} to {RATE_MAX} in a second")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_holds_times_and_rates_are_read_as_they_are_written() {
        for text in ["uniform:1000", "zipf:1.1:1000", "lock:a"] {
            assert_eq!(Keys::parse(text).unwrap().text(), text);
        }
        for (text, written) in [
            ("5ms", "const:5ms"),
            ("const:100us", "const:100us"),
            ("exp:1.5s", "exp:1500ms"),
            ("uniform:1ms:5ms", "uniform:1ms:5ms"),
        ] {
            assert_eq!(Hold::parse(text).unwrap().text(), written);
        }
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(rate("5000/s"), Ok(5000.0));
        assert_eq!(rate("0.5"), Ok(0.5));
    }

    #[test]
    fn what_is_no_number_or_out_of_bounds_is_refused() {
        for text in [
            "", "uniform", "zipf", "zipf:1.1", "zipf::5", "zipf:-1:5", "zipf:11:5", "zipf:nan:5", "zipf:1:0",
            "zipf:1:5:5", "uniform:", "uniform:0", "uniform:1000001", "uniform:1:2", "uniform:x",
        ] {
            assert!(Keys::parse(text).is_err(), "{text}");
        }
        assert!(Keys::parse(&"k".repeat(KEY_BYTES_MAX + 1)).is_err());
        for text in ["", "exp", "exp:", "exp:5 ms", "norm:5ms", "uniform:5ms:1ms", "uniform:5ms", "const:25h"]
        {
            assert!(Hold::parse(text).is_err(), "{text}");
        }
        for text in ["", "ms", "-1s", "1d", "1e3", "1.2.3", "25h", "inf", "99999999999999999999h"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["", "0", "-5", "nan", "inf", "5/m", "1000001", "1e-300"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "String", "lock"] {
            assert!(Dialect::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_plan_has_bounds() {
        let node = || Node::new("redis://", Trust::default()).unwrap();
        let plan = || Plan::new(vec![node()]);
        plan().check().unwrap();
        for plan in [
            Plan { clients: 0, ..plan() },
            Plan { clients: CLIENTS_MAX + 1, ..plan() },
            Plan { threads: 0, ..plan() },
            Plan { threads: 2, clients: 1, ..plan() },
            Plan { nodes: vec![node(), node()], ..plan() },
            Plan { nodes: vec![node(); NODES_MAX + 1], dialect: Dialect::Redlock, ..plan() },
            Plan { lease: Duration::from_millis(9), ..plan() },
            Plan { duration: Duration::ZERO, ..plan() },
            Plan { poll: Duration::ZERO, ..plan() },
        ] {
            assert!(plan.check().is_err(), "{plan:?}");
        }
        Plan { nodes: vec![node(); 3], dialect: Dialect::Redlock, ..plan() }.check().unwrap();
    }
}
