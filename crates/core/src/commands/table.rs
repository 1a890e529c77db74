//! The command table: all rows, the facts derived from each row, and the lookup by name.
//!
//! Owns    [`Command`], a row with its derived facts, and [`Table`], the lookup.
//! Rule    a lookup does not allocate, ignores letter case and takes few probes: of the buckets a quarter at most is in use.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "numbers come from our own rows, and from positions in a bounded request"
)]

use std::sync::LazyLock;

use redlatch_proto::resp::Request;

use crate::commands::row::{Arg, Flags, Kind, Row, usage};
use crate::commands::{EXEC, FAMILIES, key_specs};
use crate::keyspace::ShardSet;
use crate::scripts::native::listed_commands;

/// A row with its derived facts.
#[derive(Debug)]
pub struct Command {
    pub row: &'static Row,
    /// Lower-case name; `container|name` for a subcommand.
    pub name: String,
    /// The number of words of a request, name included; if negative, the minimum.
    pub arity: i32,
    pub keys: Keys,
    /// Where the words are that choose its slot: its keys, or names of shard channels.
    pub routed_by: Keys,
    /// Whether these may be in several slots, in one request or in the requests that it executes.
    pub may_cross: bool,
    /// Its place in the table and among the statistics of the commands.
    pub index: u16,
    /// Whether each call is timed.
    pub is_measured: bool,
    /// Its place among the commands, for `Table::find_from`. A subcommand has the place of its container.
    pub place: u16,
    /// Words of its name: one, or two for a subcommand.
    pub name_words: usize,
    pub subcommands: Vec<Command>,
}

/// Where the keys of a request are; word 0 is the name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keys {
    /// There are none.
    Nowhere,
    /// From `first` on, every `step` words; `last` counts from the end if negative.
    Range {
        /// The first key.
        first: usize,
        /// The last key, from the end if negative.
        last: i32,
        /// Words from one key to the next.
        step: usize,
    },
    /// Word `count` is the number of keys that follow it.
    Counted {
        /// A key before that number, which the command writes.
        destination: Option<usize>,
        /// The word that counts them.
        count: usize,
        /// Words from one key to the next.
        step: usize,
    },
}

/// Where the keys of a request are, one after the other.
#[derive(Debug)]
pub struct Positions {
    /// A key before the others.
    destination: Option<usize>,
    next: usize,
    end: usize,
    step: usize,
}

impl Iterator for Positions {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if let Some(destination) = self.destination.take() {
            return Some(destination);
        }
        let at = self.next;
        self.next += self.step;
        (at < self.end).then_some(at)
    }
}

impl Keys {
    /// True if there is exactly one key.
    #[inline]
    const fn is_single(self) -> bool {
        matches!(self, Self::Range { first, last, .. } if last == first as i32)
    }

    /// The positions of the keys among `words` words that `get` returns, name first.
    pub(super) fn positions_among<'a>(
        self,
        words: usize,
        get: impl Fn(usize) -> Option<&'a [u8]>,
    ) -> Positions {
        let mut destination = None;
        let (next, end, step) = match self {
            Self::Nowhere => (0, 0, 1),
            Self::Range { first, last, step } => {
                let last = if last < 0 { words as i64 + i64::from(last) } else { i64::from(last) };
                (first, usize::try_from(last + 1).unwrap_or(0).min(words), step)
            }
            Self::Counted { destination: before, count, step } => {
                let keys = get(count).and_then(redlatch_proto::number::integer).unwrap_or(0);
                let keys = usize::try_from(keys).unwrap_or(0);
                // Behind the last key; a value may follow it.
                let end = (count + 2).saturating_add(keys.saturating_sub(1).saturating_mul(step));
                let is_possible = keys > 0 && end <= words;
                destination = before.filter(|_| is_possible);
                (count + 1, if is_possible { end } else { 0 }, step)
            }
        };
        Positions { destination, next, end, step }
    }
}

#[derive(Debug)]
pub struct Table {
    commands: Vec<Command>,
    /// Open addressing by the name's hash: index of the command, `u16::MAX` for none.
    buckets: Vec<u16>,
    /// The index of each command that native scripts may call; `u16::MAX` if there is no such command.
    listed: Vec<u16>,
    /// The number of commands and subcommands.
    total: usize,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::with(&[]));

/// The commands of the core. A server may have more: [`Shared::commands`](crate::commands::Shared::commands).
#[inline]
pub fn table() -> &'static Table {
    &TABLE
}

impl Table {
    /// The commands of the core, and behind them those of another crate.
    pub fn with(rows: &'static [Row]) -> Self {
        let mut total = 0;
        let rows = FAMILIES.iter().copied().flatten().chain(rows);
        let commands: Vec<_> =
            rows.zip(0..).map(|(row, place)| Command::new(row, None, place, &mut total)).collect();
        let size = (commands.len() * 4).next_power_of_two();
        let mut table = Self { commands, buckets: vec![u16::MAX; size], listed: Vec::new(), total };
        for index in 0..table.commands.len() {
            let mut at = hash(table.commands[index].row.name.as_bytes()) & (size - 1);
            while table.buckets[at] != u16::MAX {
                at = (at + 1) & (size - 1);
            }
            table.buckets[at] = index as u16;
        }
        let place = |name: &str| table.find(name.as_bytes()).map_or(u16::MAX, |command| command.place);
        table.listed = listed_commands().map(place).collect();
        table
    }

    /// The command of that name, in any letter case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let mut at = hash(name) & (self.buckets.len() - 1);
        loop {
            let command = self.commands.get(usize::from(self.buckets[at]))?;
            if command.is_named(name) {
                return Some(command);
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    /// The command of this name. Place `last` is tried first and updated, because clients repeat their commands.
    #[inline]
    pub(crate) fn find_from(&self, last: &mut u16, name: &[u8]) -> Option<&Command> {
        match self.commands.get(usize::from(*last)) {
            Some(command) if command.is_named(name) => Some(command),
            _ => {
                let command = self.find(name)?;
                *last = command.place;
                Some(command)
            }
        }
    }

    /// The command at that place among those that native scripts may call.
    #[inline]
    pub(super) fn listed(&self, place: usize) -> Option<&Command> {
        self.commands.get(usize::from(*self.listed.get(place)?))
    }

    /// The command of a request, or the subcommand if it names one.
    pub fn of_request(&self, request: Request<'_>) -> Option<&Command> {
        let command = self.find(request.get(0)?)?;
        Some(request.get(1).and_then(|name| command.subcommand(name)).unwrap_or(command))
    }

    /// The command, or subcommand, that these words name.
    pub(super) fn named(&self, words: &[&[u8]]) -> Option<&Command> {
        let command = self.find(words.first()?)?;
        match words.get(1) {
            Some(name) if !command.subcommands.is_empty() => command.subcommand(name),
            _ => Some(command),
        }
    }

    /// The command with this name; a subcommand is named with a bar, as in `config|get`.
    pub fn find_whole(&self, name: &[u8]) -> Option<&Command> {
        let mut parts = name.splitn(2, |byte| *byte == b'|');
        let command = self.find(parts.next().unwrap_or_default())?;
        parts.next().map_or(Some(command), |subcommand| command.subcommand(subcommand))
    }

    /// Every command, not the subcommands, in the order of the families.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    pub fn all(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().flat_map(|command| std::iter::once(command).chain(&command.subcommands))
    }

    /// The number of commands and subcommands.
    pub fn total(&self) -> usize {
        self.total
    }
}

impl Command {
    fn new(row: &'static Row, container: Option<&str>, place: u16, total: &mut usize) -> Self {
        let own = row.name.to_ascii_lowercase();
        let name = container.map_or_else(|| own.clone(), |container| format!("{container}|{own}"));
        let index = *total as u16;
        *total += 1;
        let subcommands =
            row.subcommands.iter().map(|sub| Self::new(sub, Some(&name), place, total)).collect();
        let name_words = 1 + usize::from(container.is_some());
        // A container has no flags of its own, except COMMAND, which may be called without a subcommand.
        let arity = match (row.subcommands.is_empty(), row.flags == Flags::NONE) {
            (true, _) => arity(row.args, name_words),
            (false, true) => -2,
            (false, false) => -1,
        };
        let keys = keys(row.args, name_words);
        let is_short = row.flags.has(Flags::FAST.with(Flags::SCRIPT)) || keys.is_single();
        let is_measured = !is_short || row.flags.has(Flags::LINEAR);
        let routed_by = key_specs::channels(&name).unwrap_or(keys);
        let may_cross = row.name == EXEC || (routed_by != Keys::Nowhere && !routed_by.is_single());
        Self {
            row,
            name,
            arity,
            keys,
            routed_by,
            may_cross,
            index,
            is_measured,
            place,
            name_words,
            subcommands,
        }
    }

    /// Whether that is its name, in any letter case, without its container's.
    #[inline]
    fn is_named(&self, name: &[u8]) -> bool {
        let own = self.row.name.as_bytes();
        name.len() == own.len() && (name == own || self.is_named_in_another_case(name))
    }

    /// Most clients that do not write a name in upper case write all of it in lower case, which is compared at once.
    #[inline(never)]
    fn is_named_in_another_case(&self, name: &[u8]) -> bool {
        name == self.name.as_bytes() || name.eq_ignore_ascii_case(self.row.name.as_bytes())
    }

    /// The subcommand of that name, in any letter case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Command> {
        self.subcommands.iter().find(|sub| sub.is_named(name))
    }

    /// Its syntax: `SET <key> <value> [NX | XX]`.
    pub fn usage(&self) -> String {
        format!("{}{}", self.name.to_ascii_uppercase().replace('|', " "), usage(self.row.args))
    }

    /// True if the arity allows a request of `words` words.
    #[inline]
    pub fn fits(&self, words: usize) -> bool {
        if self.arity >= 0 {
            words == self.arity as usize
        } else {
            words >= self.arity.unsigned_abs() as usize
        }
    }

    /// The shards that `request` needs. `keys` is a buffer for its keys.
    #[inline]
    pub fn reach<'b, 'a>(
        &self,
        request: Request<'a>,
        keys: &'b mut smallvec::SmallVec<[&'a [u8]; 8]>,
    ) -> ShardSet<'b>
    where
        'a: 'b,
    {
        if self.row.flags.has(Flags::ALL_SHARDS) {
            return ShardSet::All;
        }
        match self.keys {
            Keys::Nowhere => ShardSet::Nothing,
            Keys::Range { first, .. } if self.keys.is_single() => {
                request.get(first).map_or(ShardSet::Nothing, ShardSet::One)
            }
            // A script locks the shards of keys that its request does not name itself.
            Keys::Counted { destination: None, count, .. } if request.get(count) == Some(b"1") => {
                request.get(count + 1).map_or(ShardSet::Nothing, ShardSet::One)
            }
            _ => {
                keys.extend(self.positions(request).map(|at| request.word(at)));
                match keys.as_slice() {
                    [] => ShardSet::Nothing,
                    [one] => ShardSet::One(one),
                    many => ShardSet::Keys(many),
                }
            }
        }
    }

    /// The positions of the keys of `request`. There are none if the count is impossible; the command refuses it.
    pub fn positions(&self, request: Request<'_>) -> Positions {
        self.keys.positions_among(request.len(), |at| request.get(at))
    }
}

fn arity(args: &[Arg], words_before: usize) -> i32 {
    let least: usize = args.iter().filter(|arg| !arg.is_optional).map(Arg::width).sum();
    let words = (words_before + least) as i32;
    if args.iter().any(Arg::is_elastic) { -words } else { words }
}

fn keys(args: &[Arg], words_before: usize) -> Keys {
    let mut at = words_before;
    let mut found = Keys::Nowhere;
    for (index, arg) in args.iter().enumerate() {
        // BLPOP: arguments behind the keys are counted from the end.
        let behind: usize = args[index + 1..].iter().filter(|arg| !arg.is_optional).map(Arg::width).sum();
        let last = if arg.is_multiple { -1 - behind as i32 } else { at as i32 };
        match (arg.kind, found) {
            (Kind::KeyCount, before) => {
                // ZINTERSTORE: a key, then the number of others.
                let destination = if let Keys::Range { first, .. } = before { Some(first) } else { None };
                return Keys::Counted { destination, count: at, step: args.get(index + 1).map_or(1, step) };
            }
            (Kind::Key, Keys::Nowhere) => found = Keys::Range { first: at, last, step: 1 },
            // RENAME, COPY: more keys right behind the first.
            (Kind::Key, Keys::Range { first, last: before, step }) if at as i32 == before + 1 => {
                found = Keys::Range { first, last, step };
            }
            // MSET: key, value, key, value.
            (Kind::Block(inner), Keys::Nowhere)
                if inner.first().is_some_and(|arg| matches!(arg.kind, Kind::Key)) =>
            {
                found = Keys::Range { first: at, last, step: step(arg) };
            }
            _ => {}
        }
        at += arg.width();
    }
    found
}

/// Words from one of these arguments to the next.
fn step(arg: &Arg) -> usize {
    if let Kind::Block(inner) = arg.kind { inner.len() } else { 1 }
}

/// A hash of the length of a name, its first and its last bytes: constant work, however long the name is.
#[inline]
fn hash(name: &[u8]) -> usize {
    // A letter differs from itself in the other case by this bit alone.
    const LETTERS: u64 = !0x2020_2020_2020_2020;
    const FACTOR: u64 = 0x517C_C1B7_2722_0A95;
    let (first, last) = match (name.first_chunk(), name.last_chunk(), name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last), ..) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        (.., Some(first), Some(last)) => {
            (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
        }
        _ => (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
    };
    let mixed = (first & LETTERS).wrapping_mul(FACTOR).rotate_left(5) ^ (last & LETTERS);
    ((mixed ^ name.len() as u64).wrapping_mul(FACTOR) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::row::Group;

    #[test]
    fn every_name_is_unique_and_found_in_any_letter_case() {
        for command in table().commands() {
            assert!(std::ptr::eq(table().find(command.name.as_bytes()).unwrap(), command));
            assert!(
                std::ptr::eq(table().find(command.row.name.as_bytes()).unwrap(), command),
                "{}",
                command.name
            );
        }
        assert!(table().find(b"gEt").is_some_and(|command| command.row.name == "GET"));
        assert!(table().find(b"get\0").is_none());
        assert!(table().find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn every_row_has_a_summary_and_is_not_both_read_only_and_write() {
        for command in table().all() {
            let row = command.row;
            assert!(row.summary.ends_with('.'), "{}: its summary is no sentence", command.name);
            assert!(!(row.flags.has(Flags::WRITE) && row.flags.has(Flags::READONLY)), "{}", command.name);
            assert_eq!(row.name, row.name.to_ascii_uppercase());
            let has_keys = command.keys != Keys::Nowhere;
            let says_so = row.flags.has(Flags::WRITE.with(Flags::READONLY).with(Flags::SCRIPT))
                || row.group == Group::Transactions;
            assert!(!has_keys || says_so, "{}: has keys and neither reads nor writes", command.name);
        }
    }
}
