//! The definition of a user: whether it is on, its passwords, and its permissions.
//!
//! Rule    the definition that an account holds is never changed in place: rules are applied to a copy, which then
//!         replaces it as a whole.
//! Source  Redis 7.0 `acl.c`, `ACLSetUser`.

use redlatch_proto::limits::ACL_RULES_MAX;
use redlatch_proto::lock::PRIORITY_MAX;
use subtle::Choice;

use super::password::Digest;
use super::rules::RuleError;
use super::selector::{Asked, Catalog, Denied, Selector};

/// The definition of one user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    is_on: bool,
    needs_none: bool,
    /// The highest PRIORITY that it may ask for; `None`: `lock-priority-max`.
    priority_max: Option<u8>,
    passwords: Vec<Digest>,
    own: Selector,
    /// Further selectors. What any selector allows is allowed.
    more: Vec<Selector>,
}

/// What a rule about priorities begins with. A digit follows.
const PRIORITY_RULE: &[u8] = b"lock-priority-max=";
const _: () = assert!(PRIORITY_MAX == 9, "each priority is one digit");
/// Bytes of a rule beside its text.
const RULE_BYTES: usize = 3 * size_of::<bytes::Bytes>();

/// What the meaning of rules depends on.
#[derive(Clone, Copy)]
pub struct Terms<'c> {
    pub catalog: &'c dyn Catalog,
    /// Whether a new user may use all channels: `acl-pubsub-default`.
    pub all_channels: bool,
}

impl User {
    /// A new user: off and without permissions.
    pub fn new(terms: Terms<'_>) -> Self {
        Self {
            is_on: false,
            needs_none: false,
            priority_max: None,
            passwords: Vec::new(),
            own: Selector::new(terms.catalog, terms.all_channels),
            more: Vec::new(),
        }
    }

    /// The default user: it has all permissions, and this password if there is one.
    pub fn default(password: &[u8], terms: Terms<'_>) -> Self {
        let mut user = Self::new(terms);
        for rule in [&b"on"[..], b"allkeys", b"allchannels", b"allcommands"] {
            // These rules are valid.
            let _ = user.apply(rule, terms);
        }
        user.use_password(password);
        user
    }

    /// Bytes of memory: its texts, and a place for each rule.
    pub(super) fn bytes(&self) -> usize {
        let rules: usize = self.selectors().map(Selector::size).sum();
        let places = self.more.len() * size_of::<Selector>() + rules * RULE_BYTES;
        size_of::<Self>() + places + self.describe().len()
    }

    /// Sets its only password; an empty one: it needs none.
    pub(crate) fn use_password(&mut self, password: &[u8]) {
        self.needs_none = password.is_empty();
        self.passwords = if self.needs_none { Vec::new() } else { vec![Digest::of(password)] };
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// [`RuleError`]; the definition must not be used then.
    pub fn apply(&mut self, rule: &[u8], terms: Terms<'_>) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" | b"sanitize-payload" | b"skip-sanitize-payload" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_none = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_none = false;
                self.passwords.clear();
            }
            b"reset" => *self = Self::new(terms),
            b"clearselectors" => self.more.clear(),
            [b'>', ..] => self.add(Digest::of(&rule[1..])),
            [b'<', ..] => self.remove(Digest::of(&rule[1..]))?,
            [b'#', ..] => self.add(Digest::parse(&rule[1..]).ok_or(RuleError::NoDigest)?),
            [b'!', ..] => self.remove(Digest::parse(&rule[1..]).ok_or(RuleError::NoDigest)?)?,
            [b'(', ..] => self.more.push(selector(rule, terms)?),
            word if word.starts_with(PRIORITY_RULE) => {
                self.priority_max = level(&word[PRIORITY_RULE.len()..])?;
            }
            _ => self.own.apply(rule, terms.catalog)?,
        }
        let selectors = self.selectors().map(|selector| 1 + selector.size());
        if self.passwords.len() + selectors.sum::<usize>() > ACL_RULES_MAX {
            return Err(RuleError::TooMany);
        }
        Ok(())
    }

    fn add(&mut self, digest: Digest) {
        self.needs_none = false;
        if !self.passwords.contains(&digest) {
            self.passwords.push(digest);
        }
    }

    fn remove(&mut self, digest: Digest) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| *known == digest);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Checks the permissions for a command.
    ///
    /// # Errors
    /// [`Denied`]: the greatest of the reasons of its selectors.
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let mut reason = None;
        for selector in self.selectors() {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denied) => reason = reason.max(Some(denied)),
            }
        }
        reason.map_or(Ok(()), Err)
    }

    /// Whether it may subscribe to this channel or pattern.
    pub(crate) fn may_listen(&self, name: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.allows_channel(name, is_pattern))
    }

    /// Whether it has all permissions.
    pub fn is_unlimited(&self, catalog: &dyn Catalog) -> bool {
        self.selectors().any(|selector| selector.allows_everything(catalog))
    }

    /// Whether somebody may log in as it.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether it is on and needs no password.
    pub fn is_open(&self) -> bool {
        self.is_on && self.needs_none
    }

    /// Whether it is on and has the password with that digest. The time does not depend on which password it is.
    pub(super) fn admits(&self, digest: &Digest) -> Choice {
        let known = self.passwords.iter().map(|known| known.is(digest));
        let is_known = known.fold(Choice::from(0), |found, is_this| found | is_this);
        Choice::from(u8::from(self.is_on)) & (Choice::from(u8::from(self.needs_none)) | is_known)
    }

    /// The highest PRIORITY that it may ask for, if a rule says that.
    pub fn priority_max(&self) -> Option<u8> {
        self.priority_max
    }

    /// Whether it needs no password, on or off.
    pub fn needs_none(&self) -> bool {
        self.needs_none
    }

    /// The digests of its passwords.
    pub fn passwords(&self) -> &[Digest] {
        &self.passwords
    }

    /// Its own selector, then the others.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.own).chain(&self.more)
    }

    /// The flags of ACL GETUSER.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_none.then_some("nopass"));
        flags
    }

    /// The rules that make this user out of a new one, as a line of the ACL file has them behind the name.
    pub fn describe(&self) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        if let Some(most) = self.priority_max {
            text.push(b' ');
            text.extend_from_slice(PRIORITY_RULE);
            text.push(b'0' + most);
        }
        for password in &self.passwords {
            text.extend_from_slice(b" #");
            text.extend_from_slice(password.hex().as_bytes());
        }
        text.push(b' ');
        self.own.describe(&mut text);
        for selector in &self.more {
            text.extend_from_slice(b" (");
            selector.describe(&mut text);
            text.push(b')');
        }
        text
    }
}

/// The level of a rule about priorities; without a digit the user has none of its own.
fn level(text: &[u8]) -> Result<Option<u8>, RuleError> {
    match text {
        [] => Ok(None),
        [digit @ b'0'..=b'9'] => Ok(Some(digit - b'0')),
        _ => Err(RuleError::Priority),
    }
}

/// The selector of a rule in parentheses.
fn selector(rule: &[u8], terms: Terms<'_>) -> Result<Selector, RuleError> {
    let inner = rule.strip_prefix(b"(").and_then(|rule| rule.strip_suffix(b")")).ok_or(RuleError::Syntax)?;
    let mut selector = Selector::new(terms.catalog, terms.all_channels);
    for word in inner.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        selector.apply(word, terms.catalog)?;
        if selector.size() > ACL_RULES_MAX {
            return Err(RuleError::TooMany);
        }
    }
    Ok(selector)
}
