//! Selectors: which commands a user may send, on which keys, to which channels.
//!
//! Owns    one set of rights; a user has one, and may have more besides.
//! Knows   commands by their numbers, and names only through [`Catalog`].
//! Rule    what was said of commands is kept in the words it was said in, as far as it still means something.
//! Source  Redis 7.0 `acl.c`; commands are shown as Redis 7.2 and Valkey show them: 7.0 makes up rules of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::rules::RuleError;
use crate::types::glob;

/// The commands, as far as rules speak of them. Each has a number; a command's subcommands have those after its own.
pub trait Catalog {
    /// How many there are, subcommands included.
    fn total(&self) -> u16;

    /// The numbers of the command `get`, `config` with its subcommands, or of the subcommand `config|get`, in any case.
    fn command(&self, name: &[u8]) -> Option<Range<u16>>;

    /// The numbers of all that are in a category, in any order; `None` where there is no such category.
    fn category(&self, name: &[u8]) -> Option<Vec<u16>>;
}

/// What a command does with a key, as far as rights go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Access {
    /// It tells what the key holds.
    pub reads: bool,
    /// It changes what the key holds.
    pub writes: bool,
}

impl Access {
    /// Both.
    pub const ALL: Self = Self { reads: true, writes: true };

    fn covers(self, other: Self) -> bool {
        self.reads >= other.reads && self.writes >= other.writes
    }

    fn with(self, other: Self) -> Self {
        Self { reads: self.reads || other.reads, writes: self.writes || other.writes }
    }
}

/// What somebody wants to do.
#[derive(Clone, Debug)]
pub struct Asked<'r> {
    /// The command's number.
    pub command: u16,
    /// Whether everybody may send it: AUTH and its kind.
    pub is_free: bool,
    /// The word behind its name.
    pub first: Option<&'r [u8]>,
    /// Its keys: where each stands in the request, its name, what becomes of it.
    pub keys: Vec<(usize, &'r [u8], Access)>,
    /// The channels that need a right: where each stands, its name.
    pub channels: Vec<(usize, &'r [u8])>,
    /// Whether the channels are patterns.
    pub is_pattern: bool,
}

/// Why it may not be done; of several reasons Redis names the greatest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Denied {
    /// The command is not among the user's.
    Command,
    /// The key at this word is not.
    Key(usize),
    /// The channel at this word is not.
    Channel(usize),
}

/// One set of rights.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selector {
    /// Which commands, by number.
    allowed: Box<[u64]>,
    /// Commands that are allowed with these first words only, in lower case.
    firsts: BTreeMap<u16, Vec<Bytes>>,
    /// What the rules for commands start from: all, or none.
    starts_with_all: bool,
    rules: Vec<Rule>,
    keys: Patterns<KeyPattern>,
    channels: Patterns<Bytes>,
}

/// `+get`, `-@write`: without the sign, in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Rule {
    allows: bool,
    name: Bytes,
}

/// Everything, or what fits one of these.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Patterns<P> {
    All,
    These(Vec<P>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct KeyPattern {
    pattern: Bytes,
    access: Access,
}

impl Selector {
    /// No commands, no keys; all channels or none.
    pub(super) fn new(catalog: &dyn Catalog, all_channels: bool) -> Self {
        Self {
            allowed: vec![0; usize::from(catalog.total()).div_ceil(64)].into(),
            firsts: BTreeMap::new(),
            starts_with_all: false,
            rules: Vec::new(),
            keys: Patterns::These(Vec::new()),
            channels: if all_channels { Patterns::All } else { Patterns::These(Vec::new()) },
        }
    }

    /// One rule more.
    ///
    /// # Errors
    /// [`RuleError`]; nothing has changed then.
    pub(super) fn apply(&mut self, rule: &[u8], catalog: &dyn Catalog) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => self.keys = Patterns::All,
            b"resetkeys" => self.keys = Patterns::These(Vec::new()),
            b"allchannels" | b"&*" => self.channels = Patterns::All,
            b"resetchannels" => self.channels = Patterns::These(Vec::new()),
            b"allcommands" | b"+@all" => self.start_with(true, catalog),
            b"nocommands" | b"-@all" => self.start_with(false, catalog),
            [b'+' | b'-', name @ ..] => return self.command(rule[0] == b'+', name, catalog),
            [b'~', ..] => return self.key(&rule[1..], Access::ALL),
            [b'%', ..] => {
                let (access, pattern) = key_access(&rule[1..], &self.keys)?;
                return self.key(pattern, access);
            }
            [b'&', ..] => return self.channel(&rule[1..]),
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn start_with(&mut self, all: bool, catalog: &dyn Catalog) {
        self.starts_with_all = all;
        self.rules.clear();
        self.firsts.clear();
        self.set(0..catalog.total(), all);
    }

    fn command(&mut self, allows: bool, name: &[u8], catalog: &dyn Catalog) -> Result<(), RuleError> {
        if let Some(category) = name.strip_prefix(b"@") {
            for number in catalog.category(category).ok_or(RuleError::UnknownCommand)? {
                self.set(number..number + 1, allows);
            }
        } else if let Some(numbers) = catalog.command(name) {
            self.set(numbers, allows);
        } else {
            let (number, first) =
                if allows { first_word(name, catalog)? } else { return Err(RuleError::UnknownCommand) };
            let firsts = self.firsts.entry(number).or_default();
            if !firsts.iter().any(|known| known == first) {
                firsts.push(Bytes::copy_from_slice(first));
            }
        }
        // What this rule decides anew need not be said before it.
        self.rules.retain(|rule| !is_part_of(&rule.name, name));
        self.rules.push(Rule { allows, name: Bytes::copy_from_slice(name) });
        Ok(())
    }

    fn key(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        let Patterns::These(keys) = &mut self.keys else { return Err(RuleError::AllKeys) };
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        match keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => known.access = known.access.with(access),
            None => keys.push(KeyPattern { pattern: Bytes::copy_from_slice(pattern), access }),
        }
        Ok(())
    }

    fn channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let Patterns::These(channels) = &mut self.channels else { return Err(RuleError::AllChannels) };
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        if !channels.iter().any(|known| known == pattern) {
            channels.push(Bytes::copy_from_slice(pattern));
        }
        Ok(())
    }

    fn set(&mut self, numbers: Range<u16>, allowed: bool) {
        for number in numbers {
            let (word, bit) = (usize::from(number / 64), 1 << (number % 64));
            if allowed {
                self.allowed[word] |= bit;
            } else {
                self.allowed[word] &= !bit;
            }
            self.firsts.remove(&number);
        }
    }

    /// Whether it may be done.
    ///
    /// # Errors
    /// [`Denied`], for the first thing that it may not.
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        if !asked.is_free && !self.allows(asked.command) && !self.allows_with(asked.command, asked.first) {
            return Err(Denied::Command);
        }
        if let Patterns::These(known) = &self.keys {
            let fits = |name: &[u8], access| {
                known.iter().any(|key| key.access.covers(access) && glob::matches(&key.pattern, name))
            };
            if let Some((at, ..)) = asked.keys.iter().find(|(_, name, access)| !fits(name, *access)) {
                return Err(Denied::Key(*at));
            }
        }
        let fits = |name| self.allows_channel(name, asked.is_pattern);
        match asked.channels.iter().find(|(_, name)| !fits(name)) {
            Some((at, _)) => Err(Denied::Channel(*at)),
            None => Ok(()),
        }
    }

    /// Whether it covers a channel, or all that a pattern of channels can stand for: only the same pattern is sure to.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        match &self.channels {
            Patterns::All => true,
            Patterns::These(known) if is_pattern => known.iter().any(|known| known == name),
            Patterns::These(known) => known.iter().any(|known| glob::matches(known, name)),
        }
    }

    /// Whether nothing is denied.
    pub(super) fn allows_everything(&self, catalog: &dyn Catalog) -> bool {
        matches!((&self.keys, &self.channels), (Patterns::All, Patterns::All))
            && (0..catalog.total()).all(|number| self.allows(number))
    }

    fn allows(&self, number: u16) -> bool {
        self.allowed.get(usize::from(number / 64)).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn allows_with(&self, number: u16, first: Option<&[u8]>) -> bool {
        let known = self.firsts.get(&number).map_or(&[][..], Vec::as_slice);
        first.is_some_and(|first| known.iter().any(|known| first.eq_ignore_ascii_case(known)))
    }

    /// The rules for commands: `-@all +get`.
    pub fn commands(&self) -> Vec<u8> {
        let mut text = if self.starts_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            text.extend_from_slice(&rule.name);
        }
        text
    }

    /// The patterns of keys: `~a* %R~b*`.
    pub fn keys(&self) -> Vec<u8> {
        let Patterns::These(keys) = &self.keys else { return b"~*".to_vec() };
        let words = keys.iter().map(|key| {
            let sign: &[u8] = match key.access {
                Access { reads: true, writes: true } => b"~",
                Access { reads: true, .. } => b"%R~",
                Access { .. } => b"%W~",
            };
            [sign, &key.pattern].concat()
        });
        words.collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of channels: `&a* &b*`.
    pub fn channels(&self) -> Vec<u8> {
        let Patterns::These(channels) = &self.channels else { return b"&*".to_vec() };
        channels.iter().map(|channel| [b"&", &channel[..]].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules that make this selector out of an empty one, as ACL LIST shows them.
    pub(super) fn describe(&self, text: &mut Vec<u8>) {
        let keys = self.keys();
        if !keys.is_empty() {
            text.extend_from_slice(&keys);
            text.push(b' ');
        }
        if matches!(self.channels, Patterns::These(_)) {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channels();
        if !channels.is_empty() {
            text.extend_from_slice(&channels);
            text.push(b' ');
        }
        text.extend_from_slice(&self.commands());
    }

    /// How much it remembers: rules, patterns, first words.
    pub(super) fn size(&self) -> usize {
        fn count<P>(patterns: &Patterns<P>) -> usize {
            match patterns {
                Patterns::All => 0,
                Patterns::These(these) => these.len(),
            }
        }
        count(&self.keys)
            + count(&self.channels)
            + self.rules.len()
            + self.firsts.values().map(Vec::len).sum::<usize>()
    }
}

/// The letters between `%` and `~`, and the pattern behind them.
fn key_access<'a, P>(text: &'a [u8], keys: &Patterns<P>) -> Result<(Access, &'a [u8]), RuleError> {
    if matches!(keys, Patterns::All) {
        return Err(RuleError::AllKeys);
    }
    let end = text.iter().position(|byte| *byte == b'~').unwrap_or(text.len());
    let mut access = Access::default();
    for letter in &text[..end] {
        let what = match letter.to_ascii_uppercase() {
            b'R' => &mut access.reads,
            b'W' => &mut access.writes,
            _ => return Err(RuleError::Syntax),
        };
        if std::mem::replace(what, true) {
            return Err(RuleError::Syntax);
        }
    }
    if access == Access::default() {
        return Err(RuleError::Syntax);
    }
    Ok((access, text.get(end + 1..).unwrap_or_default()))
}

/// `select|0`: a command without subcommands, and the first word that is allowed with it.
fn first_word<'a>(name: &'a [u8], catalog: &dyn Catalog) -> Result<(u16, &'a [u8]), RuleError> {
    let bar = name.iter().rposition(|byte| *byte == b'|').ok_or(RuleError::UnknownCommand)?;
    let (command, first) = (&name[..bar], &name[bar + 1..]);
    let numbers = catalog.command(command).ok_or(RuleError::UnknownCommand)?;
    match () {
        () if command.contains(&b'|') => Err(RuleError::FirstOfSubcommand),
        () if first.is_empty() => Err(RuleError::Syntax),
        () if numbers.len() > 1 => Err(RuleError::UnknownCommand),
        () => Ok((numbers.start, first)),
    }
}

/// Whether what `known` says is a part of what `name` says: `config|get` of `config`, anything of itself.
fn is_part_of(known: &[u8], name: &[u8]) -> bool {
    known.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'|'))
}

fn has_space(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0b)
}
