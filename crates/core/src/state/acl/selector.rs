//! Selectors: which commands a user may send, on which keys, to which channels.
//!
//! Owns    one set of permissions. A user has one selector, and may have more.
//! Knows   commands by their numbers, and names only through [`Catalog`].
//! Rule    rules for commands are kept as they were written, except those that a later rule has overridden.
//! Source  Redis 7.0 `acl.c`; the rules for commands are shown as by Redis 7.2 and Valkey.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::rules::RuleError;
use crate::types::glob;

/// The commands that rules can name. Each has a number; the subcommands of a command have the numbers after its own.
pub trait Catalog {
    /// How many commands there are, including subcommands.
    fn total(&self) -> u16;

    /// The numbers of a command and its subcommands (`get`, `config`), or of a subcommand (`config|get`), in any letter
    /// case.
    fn command(&self, name: &[u8]) -> Option<Range<u16>>;

    /// The numbers of all commands in a category, in any order; `None` if there is no such category.
    fn category(&self, name: &[u8]) -> Option<Vec<u16>>;
}

/// What a command does with a key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Access {
    pub reads: bool,
    pub writes: bool,
}

impl Access {
    pub const ALL: Self = Self { reads: true, writes: true };

    fn covers(self, other: Self) -> bool {
        self.reads >= other.reads && self.writes >= other.writes
    }

    fn with(self, other: Self) -> Self {
        Self { reads: self.reads || other.reads, writes: self.writes || other.writes }
    }
}

/// The permissions that a request needs.
#[derive(Clone, Debug)]
pub struct Asked<'r> {
    pub command: u16,
    /// Whether it needs no permission, like AUTH.
    pub is_free: bool,
    /// The word behind its name.
    pub first: Option<&'r [u8]>,
    /// Its keys: the index in the request, the name, and the access.
    pub keys: Vec<(usize, &'r [u8], Access)>,
    /// Its channels: the index in the request and the name.
    pub channels: Vec<(usize, &'r [u8])>,
    /// Whether the channels are patterns.
    pub is_pattern: bool,
}

/// Which permission is missing. Of several reasons Redis names the greatest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Denied {
    /// The permission for the command.
    Command,
    /// The permission for the key at this index.
    Key(usize),
    /// The permission for the channel at this index.
    Channel(usize),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Selector {
    /// The allowed commands, one bit for each number.
    allowed: Box<[u64]>,
    /// Commands that are allowed only with one of these first arguments, in lower case.
    firsts: BTreeMap<u16, Vec<Bytes>>,
    /// Whether the rules for commands start from `+@all` and not from `-@all`.
    starts_with_all: bool,
    rules: Vec<Rule>,
    keys: Patterns<KeyPattern>,
    channels: Patterns<Bytes>,
}

/// A rule for commands: `+get` or `-@write`. The name is without the sign and in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Rule {
    allows: bool,
    name: Bytes,
}

/// Everything, or what matches one of these patterns.
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
    /// A selector without commands and keys, and with all channels or none.
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

    /// Applies one rule.
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
        // Earlier rules that this one overrides are dropped.
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

    /// Checks the permissions for a request.
    ///
    /// # Errors
    /// [`Denied`]: the first missing permission.
    pub(crate) fn check(&self, asked: &Asked<'_>) -> Result<(), Denied> {
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

    /// Whether it allows a channel or a pattern. A pattern is allowed only if an identical pattern is in a rule.
    pub(crate) fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        match &self.channels {
            Patterns::All => true,
            Patterns::These(known) if is_pattern => known.iter().any(|known| known == name),
            Patterns::These(known) => known.iter().any(|known| glob::matches(known, name)),
        }
    }

    /// Whether it has all permissions.
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
    pub(crate) fn commands(&self) -> Vec<u8> {
        let mut text = if self.starts_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            text.extend_from_slice(&rule.name);
        }
        text
    }

    /// The patterns of keys: `~a* %R~b*`.
    pub(crate) fn keys(&self) -> Vec<u8> {
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
    pub(crate) fn channels(&self) -> Vec<u8> {
        let Patterns::These(channels) = &self.channels else { return b"&*".to_vec() };
        channels.iter().map(|channel| [b"&", &channel[..]].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Appends all its rules, as ACL LIST shows them.
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

    /// How many rules, patterns and first arguments it has.
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

/// Parses `RW~pattern`, the part of a rule behind `%`.
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

/// Parses `select|0`: a command without subcommands, and an allowed first argument.
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

/// Whether the rule `known` is covered by the rule `name`: `config|get` by `config`, and every rule by itself.
fn is_part_of(known: &[u8], name: &[u8]) -> bool {
    known.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'|'))
}

/// Whether the text contains white space or a NUL.
pub(super) fn has_space(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0b)
}
