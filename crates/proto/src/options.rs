//! The options of a lock that the flags of the program, HTTP and the tools of agents offer alike.
//!
//! Owns    a row for each, from which these faces and their tables in `docs/` are made; what a request says by them, and its
//!         words in LOCK.ACQUIRE.
//! Rule    an option is read, checked and written here. Leases and waits are each face's own: their names and limits differ.

use std::collections::BTreeSet;

use crate::lock::{META_BYTES_MAX, META_FIELDS_MAX, PERMITS_MAX, PRIORITY_MAX};

/// An option, as these faces show it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// A flag without its dashes, a field of a body, an argument of a tool.
    pub name: &'static str,
    pub takes: Takes,
    /// What it does, in a sentence.
    pub help: &'static str,
}

/// What is given with an option, and where it is noted.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Names with texts.
    Fields(fn(&mut Given, Vec<(String, String)>)),
    /// Nothing, or whether it is so.
    Flag(fn(&mut Given, bool)),
    /// A whole number, from the first to the second.
    Number(u64, u64, fn(&mut Given, Option<u64>)),
    Text(fn(&mut Given, Option<String>)),
}

use Takes::{Fields, Flag, Number, Text};

/// All options.
pub const ROWS: [Row; 6] = [
    row("why", Text(|given, why| given.why = why), "Says why the lock is taken: the field reason of meta."),
    row("meta", Fields(|given, meta| given.meta = meta), "Notes for everybody: at most 64 fields, 4 KiB."),
    row("shared", Flag(|given, shared| given.shared = shared), "Shares the lock with others that share it."),
    row(
        "permits",
        Number(1, PERMITS, |given, count| given.permits = count),
        "Takes permits of a semaphore. Needs its size.",
    ),
    row(
        "of",
        Number(1, PERMITS, |given, limit| given.of = limit),
        "The size of the semaphore: all its permits.",
    ),
    row(
        "priority",
        Number(0, PRIORITY_MAX as u64, |given, priority| given.priority = priority),
        "Moves the request forward in its queues.",
    ),
];

const PERMITS: u64 = PERMITS_MAX as u64;

const fn row(name: &'static str, takes: Takes, help: &'static str) -> Row {
    Row { name, takes, help }
}

/// What a face was given, unchecked.
#[derive(Clone, Debug, Default)]
pub struct Given {
    why: Option<String>,
    meta: Vec<(String, String)>,
    shared: bool,
    permits: Option<u64>,
    of: Option<u64>,
    priority: Option<u64>,
}

/// What a request for a lock says beside its owner, its lease and its wait.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    pub kind: Kind,
    /// Fields that others see, with their values.
    pub meta: Vec<(Vec<u8>, Vec<u8>)>,
    /// How far it is moved forward in its queues: 0, the default, to [`PRIORITY_MAX`].
    pub priority: u64,
}

/// The kinds of locks that can be asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Kind {
    /// One owner has the lock.
    #[default]
    Exclusive,
    /// Permits of a semaphore.
    Permits {
        /// How many to take: 1 to `limit`.
        count: u64,
        /// How many there are: at most [`PERMITS_MAX`].
        limit: u64,
    },
    /// The owner may take the lock several times, and releases it as often.
    Reentrant,
    /// The lock is shared with others that share it.
    Shared,
}

impl Kind {
    /// The words of LOCK.ACQUIRE, also those of a MODE of LOCK.MACQUIRE.
    pub fn words(self) -> Vec<Vec<u8>> {
        let number = |number: u64| number.to_string().into_bytes();
        match self {
            Self::Exclusive => Vec::new(),
            Self::Permits { count, limit } => {
                vec![b"PERMITS".to_vec(), number(count), b"OF".to_vec(), number(limit)]
            }
            Self::Reentrant => vec![b"REENTRANT".to_vec()],
            Self::Shared => vec![b"SHARED".to_vec()],
        }
    }
}

impl Given {
    /// Checks what was given. `called`: how users of the face call an option.
    ///
    /// # Errors
    /// Options that exclude or need each other, no reason, or a META that cannot be. The fault begins with the option's name.
    pub fn options(self, called: impl Fn(&str) -> String) -> Result<Options, String> {
        let [permits, of] = ["permits", "of"].map(&called);
        let kind = match (self.shared, self.permits, self.of) {
            (false, None, None) => Kind::Exclusive,
            (true, None, None) => Kind::Shared,
            (false, Some(count), Some(limit)) if count <= limit => Kind::Permits { count, limit },
            (false, Some(_), Some(_)) => return Err(format!("{permits}: must be no more than {of}")),
            (true, ..) => return Err(format!("{}: excludes {permits} and {of}", called("shared"))),
            (false, Some(_), None) => return Err(format!("{permits}: needs {of}")),
            (false, None, Some(_)) => return Err(format!("{of}: needs {permits}")),
        };
        let [why, meta] = ["why", "meta"].map(called);
        if self.why.as_ref().is_some_and(String::is_empty) {
            return Err(format!("{why}: must be a text that is not empty"));
        }
        if self.why.is_some() && self.meta.iter().any(|(field, _)| field == REASON) {
            return Err(format!("{why}: is the field '{REASON}' of {meta}, which is there already"));
        }
        let fields = self.meta.into_iter().chain(self.why.map(|why| (REASON.to_owned(), why)));
        let fields = fields.map(|(field, value)| (field.into_bytes(), value.into_bytes()));
        let options = Options { kind, meta: fields.collect(), priority: self.priority.unwrap_or(0) };
        options.check().map_err(|fault| format!("{meta} and {why}: {fault}"))?;
        Ok(options)
    }
}

impl Options {
    /// Says whether META may have these fields.
    ///
    /// # Errors
    /// They are too long or too many, two have one name, or one has none: the limits, for people.
    pub fn check(&self) -> Result<(), String> {
        let bytes: usize = self.meta.iter().map(|(field, value)| field.len() + value.len()).sum();
        let names: BTreeSet<&[u8]> = self.meta.iter().map(|(field, _)| &field[..]).collect();
        let are_names = names.len() == self.meta.len() && !names.contains(&b""[..]);
        match bytes <= META_BYTES_MAX && self.meta.len() <= META_FIELDS_MAX && are_names {
            true => Ok(()),
            false => Err(format!(
                "at most {META_FIELDS_MAX} fields of {META_BYTES_MAX} bytes in all, each with a name of its own"
            )),
        }
    }

    /// The last words of LOCK.ACQUIRE: META ends them.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = self.kind.words();
        if self.priority > 0 {
            words.extend([b"PRIORITY".to_vec(), self.priority.to_string().into_bytes()]);
        }
        if !self.meta.is_empty() {
            words.push(b"META".to_vec());
            words.extend(self.meta.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
        }
        words
    }
}

/// The field of META that `why` is.
const REASON: &str = "reason";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_noted_and_becomes_words_of_the_request() {
        for row in ROWS {
            let mut given = Given::default();
            match row.takes {
                Fields(note) => note(&mut given, vec![("field".to_owned(), String::new())]),
                Flag(note) => note(&mut given, true),
                Number(_, most, note) => note(&mut given, Some(most)),
                Text(note) => note(&mut given, Some("text".to_owned())),
            }
            match given.options(str::to_owned) {
                Ok(options) => assert!(!options.words().is_empty(), "{}", row.name),
                Err(fault) => assert!(fault.starts_with(&format!("{}: needs ", row.name)), "{fault}"),
            }
        }
        assert!(Options::default().words().is_empty());
    }

    #[test]
    fn fields_have_names_of_their_own_and_a_reason_is_not_empty() {
        let given = |meta: &[&str], why: Option<&str>| {
            let meta = meta.iter().map(|field| ((*field).to_owned(), "value".to_owned())).collect();
            let why = why.map(str::to_owned);
            Given { meta, why, ..Given::default() }.options(str::to_owned)
        };
        assert!(given(&["a", "b"], Some("reason")).is_ok());
        for (meta, why, fault) in [
            (&["a", "a"][..], None, "meta and why: at most 64 fields"),
            (&[""], None, "meta and why: at most 64 fields"),
            (&["reason"], Some("why"), "why: is the field 'reason'"),
            (&[], Some(""), "why: must be a text that is not empty"),
        ] {
            let said = given(meta, why).expect_err("a fault");
            assert!(said.starts_with(fault), "{said}");
        }
    }
}
