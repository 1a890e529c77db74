//! The grammar of the command table.
//!
//! Owns    [`Row`] and [`Arg`]: the name, the arguments and the function of a command. Arity, key positions, ACL
//!         categories and the replies of COMMAND are derived from them.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "numbers come from our own rows, and from positions in a bounded request"
)]

use redlatch_proto::error::Refusal;

use crate::commands::{Call, Outcome};

/// A command: its name, its arguments, and the function that executes it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Upper-case name. The name of a subcommand is its second word alone.
    pub name: &'static str,
    /// Its effect, in one sentence.
    pub summary: &'static str,
    /// The version of Redis (or of the server named in the summary) that first had it.
    pub since: &'static str,
    /// The group in the documentation.
    pub group: Group,
    /// Its effects on the keyspace, and the states in which it is allowed.
    pub flags: Flags,
    pub args: &'static [Arg],
    /// Its subcommands, if its first argument names one.
    pub subcommands: &'static [Row],
    pub run: Run,
}

/// The function that executes a command.
pub type Run = fn(&mut Call<'_, '_>) -> Result<Outcome, Refusal>;

impl Row {
    /// A command without flags, arguments and subcommands.
    pub const fn new(group: Group, name: &'static str, since: &'static str, run: Run) -> Self {
        Self { name, summary: "", since, group, flags: Flags::NONE, args: &[], subcommands: &[], run }
    }

    /// A command that does nothing without a subcommand.
    pub const fn container(
        group: Group,
        name: &'static str,
        since: &'static str,
        subcommands: &'static [Self],
    ) -> Self {
        Self { subcommands, ..Self::new(group, name, since, refuse_arity) }
    }

    /// Replaces the version that first had the command.
    #[must_use]
    pub const fn since(self, since: &'static str) -> Self {
        Self { since, ..self }
    }

    #[must_use]
    pub const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    #[must_use]
    pub const fn flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    #[must_use]
    pub const fn args(self, args: &'static [Arg]) -> Self {
        Self { args, ..self }
    }

    #[must_use]
    pub const fn subcommands(self, subcommands: &'static [Row]) -> Self {
        Self { subcommands, ..self }
    }
}

/// The function of a container, which its arity keeps from being called.
fn refuse_arity(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::Arity(call.command.name.as_str().into()))
}

/// The group of a command in the documentation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Group {
    Cluster,
    Connection,
    Generic,
    Hash,
    List,
    Lock,
    PubSub,
    Scripting,
    Sentinel,
    /// The server as a whole.
    Server,
    Set,
    /// Sorted sets.
    SortedSet,
    Stream,
    String,
    Test,
    Transactions,
}

impl Group {
    /// The name that COMMAND DOCS gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Connection => "connection",
            Self::Generic => "generic",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Lock => "lock",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
            Self::Sentinel => "sentinel",
            Self::Server => "server",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Stream => "stream",
            Self::String => "string",
            Self::Test => "test",
            Self::Transactions => "transactions",
        }
    }
}

/// What a command may do, and when it may be sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    pub const WRITE: Self = Self(1);
    /// Only reads it.
    pub const READONLY: Self = Self(1 << 1);
    /// Takes constant or logarithmic time.
    pub const FAST: Self = Self(1 << 2);
    /// May use more memory: refused above `maxmemory`.
    pub const DENYOOM: Self = Self(1 << 3);
    pub const ADMIN: Self = Self(1 << 4);
    /// May be sent before authentication.
    pub(crate) const NO_AUTH: Self = Self(1 << 5);
    pub const NOSCRIPT: Self = Self(1 << 6);
    /// Allowed while data are loading.
    pub const LOADING: Self = Self(1 << 7);
    /// Allowed on a replica with old data.
    pub const STALE: Self = Self(1 << 8);
    /// Carries a password: never in the slow log, and redacted for MONITOR.
    pub(crate) const SECRET: Self = Self(1 << 9);
    /// Reads or writes every shard.
    pub(crate) const ALL_SHARDS: Self = Self(1 << 10);
    /// Whether it writes depends on the script.
    pub const SCRIPT: Self = Self(1 << 11);
    /// May be sent by a RESP2 client that is subscribed.
    pub const SUBSCRIBED: Self = Self(1 << 12);
    pub const BLOCKING: Self = Self(1 << 13);
    pub const PUBSUB: Self = Self(1 << 14);
    /// In the ACL category `dangerous`.
    pub(crate) const DANGEROUS: Self = Self(1 << 15);
    /// Not delayed by CLIENT PAUSE.
    pub const UNPAUSED: Self = Self(1 << 16);
    /// Takes time that grows with its data. Each call is timed, and the clock is read again after a long one.
    pub(crate) const LINEAR: Self = Self(1 << 17);
    /// Executed at once after MULTI, not queued.
    pub const UNQUEUED: Self = Self(1 << 18);
    /// Redis executes it while a script runs for too long: `allow_busy` of COMMAND. Here every command is executed that
    /// needs neither the shards of the script nor its thread.
    pub const BUSY: Self = Self(1 << 19);
    /// Sums over all shards, one after the other. Inside EXEC all shards are locked, since EXEC sees one instant.
    pub(crate) const SUMS: Self = Self(1 << 20);
    /// Refused unless `enable-debug-command` allows it to this client.
    pub const PROTECTED: Self = Self(1 << 24);
    /// Refused after MULTI.
    pub const NO_MULTI: Self = Self(1 << 21);
    /// Changes no key, but Redis would replicate it: counts as a write where only reads are allowed.
    pub(crate) const REPLICATED: Self = Self(1 << 22);
    /// May always take long: executed on the script thread.
    pub(crate) const OFFLOAD: Self = Self(1 << 23);

    /// Only removes: carried out in the quarantine, and while the journal cannot be written.
    pub(crate) const REMOVES: Self = Self(1 << 25);
    /// Refused while data are loading in the background. Nothing loads there: for COMMAND.
    pub(crate) const NO_ASYNC_LOADING: Self = Self(1 << 26);

    /// The union of two sets of flags.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flags without `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if the set has any flag of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// One argument, in the grammar of a row.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name in COMMAND DOCS.
    pub name: &'static str,
    pub kind: Kind,
    /// The fixed word before it.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may come several times.
    pub is_multiple: bool,
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Block(&'static [Arg]),
    /// A channel, or a pattern of channels, that the ACL checks.
    Channel {
        is_pattern: bool,
    },
    Double,
    Integer,
    Key,
    /// The number of keys that follow.
    KeyCount,
    /// One of several arguments.
    OneOf(&'static [Arg]),
    Pattern,
    /// Its token only.
    Token,
    /// A Unix time.
    UnixTime,
    /// Any bytes.
    Text,
}

const fn plain(name: &'static str, kind: Kind) -> Arg {
    Arg { name, kind, token: None, is_optional: false, is_multiple: false }
}

pub const fn key(name: &'static str) -> Arg {
    plain(name, Kind::Key)
}

/// The number of keys that follow.
pub(crate) const fn key_count() -> Arg {
    plain("numkeys", Kind::KeyCount)
}

/// Any bytes.
pub const fn text(name: &'static str) -> Arg {
    plain(name, Kind::Text)
}

pub const fn integer(name: &'static str) -> Arg {
    plain(name, Kind::Integer)
}

pub const fn double(name: &'static str) -> Arg {
    plain(name, Kind::Double)
}

/// A Unix time.
pub const fn unix_time(name: &'static str) -> Arg {
    plain(name, Kind::UnixTime)
}

pub const fn pattern(name: &'static str) -> Arg {
    plain(name, Kind::Pattern)
}

/// A channel to subscribe or publish to.
pub const fn channel(name: &'static str) -> Arg {
    plain(name, Kind::Channel { is_pattern: false })
}

/// A pattern of channels to subscribe to.
pub(crate) const fn channel_pattern(name: &'static str) -> Arg {
    plain(name, Kind::Channel { is_pattern: true })
}

pub const fn token(name: &'static str, word: &'static str) -> Arg {
    Arg { token: Some(word), ..plain(name, Kind::Token) }
}

/// One of several arguments.
pub const fn one_of(name: &'static str, args: &'static [Arg]) -> Arg {
    plain(name, Kind::OneOf(args))
}

pub const fn block(name: &'static str, args: &'static [Arg]) -> Arg {
    plain(name, Kind::Block(args))
}

impl Arg {
    /// Makes it optional.
    #[must_use]
    pub const fn maybe(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Allows it several times.
    #[must_use]
    pub const fn many(self) -> Self {
        Self { is_multiple: true, ..self }
    }

    /// Requires `word` before it.
    #[must_use]
    pub const fn after(self, word: &'static str) -> Self {
        Self { token: Some(word), ..self }
    }

    /// Minimum number of words of the argument, if it is present.
    pub(super) fn width(&self) -> usize {
        let own = match self.kind {
            Kind::Token => 0,
            Kind::OneOf(args) => args.iter().map(Arg::width).min().unwrap_or(0),
            Kind::Block(args) => args.iter().filter(|arg| !arg.is_optional).map(Arg::width).sum(),
            _ => 1,
        };
        own + usize::from(self.token.is_some())
    }

    /// True if it can take more words than [`Arg::width`].
    pub(super) fn is_elastic(&self) -> bool {
        let inner = match self.kind {
            Kind::OneOf(args) => args.iter().any(|arg| arg.is_elastic() || arg.width() != args[0].width()),
            Kind::Block(args) => args.iter().any(Arg::is_elastic),
            _ => false,
        };
        self.is_optional || self.is_multiple || inner
    }
}

/// The arguments as documentation shows them, each after a space: ` <key> [EX <seconds> | KEEPTTL]`.
pub(super) fn usage(args: &[Arg]) -> String {
    args.iter().map(|arg| format!(" {}", one(arg))).collect()
}

fn one(arg: &Arg) -> String {
    let value = match arg.kind {
        Kind::Token => String::new(),
        Kind::OneOf(args) => args.iter().map(one).collect::<Vec<_>>().join(" | "),
        Kind::Block(args) => usage(args).trim_start().to_owned(),
        _ => format!("<{}>", arg.name),
    };
    let value = match arg.token {
        Some(token) if value.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {value}"),
        None => value,
    };
    match (arg.is_optional, arg.is_multiple) {
        (true, true) => format!("[{value} ...]"),
        (true, false) => format!("[{value}]"),
        (false, true) => format!("{value} [{value} ...]"),
        (false, false) if matches!(arg.kind, Kind::OneOf(_)) => format!("<{value}>"),
        (false, false) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_follows_the_notation_of_the_documentation() {
        const LEASE: Arg = one_of("lease", &[integer("seconds").after("EX"), token("keepttl", "KEEPTTL")]);
        let args = [key("key").many(), LEASE.maybe(), token("now", "NOW").maybe()];
        assert_eq!(usage(&args), " <key> [<key> ...] [EX <seconds> | KEEPTTL] [NOW]");
    }
}
