//! What can be wrong in a run, and what it comes from.
//!
//! Rule    problems of one cause have one ID, in every run and every search. So an ID has no number of a command, and of the
//!         name of a lock no part with a digit: such parts may be drawn anew in each run.

use redlatch_core::locks::Rule;
use redlatch_testing::{Event, EventKind, Finding, shown};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    /// The command that it comes from and its lock, see [`place`].
    pub(super) place: String,
    /// What happened, in a sentence.
    pub(super) text: String,
    /// The events that show it, a line for each.
    pub(super) lines: Vec<String>,
}

/// What is wrong. In the order of LOCK.LINT, then the problems that only a whole command has.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum ProblemKind {
    /// A rule of TEST.CHECK is broken.
    Broken(Rule),
    /// The command fails where it must not.
    Failed,
    /// The command does not end.
    Hung,
    /// A lock is left that nobody releases.
    Left,
}

impl Problem {
    /// A broken rule. It comes from the last request that shows it.
    pub(super) fn broken(finding: Finding, events: &[Event]) -> Self {
        let requests = finding.events.iter().rev().filter_map(|id| request_of(events, *id));
        let place = requests.map(|request| place(request, Some(&finding.key))).next().unwrap_or_default();
        let Finding { rule, text, lines, .. } = finding;
        Self { kind: ProblemKind::Broken(rule), place, text, lines }
    }

    /// What `--accept` takes.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.kind.name(), self.place)
    }

    /// Reads an ID.
    ///
    /// # Errors
    /// No problem has such an ID.
    pub(super) fn read_id(id: &str) -> Result<String, String> {
        let others = [ProblemKind::Failed, ProblemKind::Hung, ProblemKind::Left];
        let mut kinds = Rule::ALL.map(ProblemKind::Broken).into_iter().chain(others);
        let mut is_kind = |name: &str| kinds.any(|kind| kind.name() == name);
        match id.split_once('/') {
            Some((kind, place)) if is_kind(kind) && !place.is_empty() => Ok(id.to_owned()),
            _ => Err("no finding has this ID; one is left/SET/orders".to_owned()),
        }
    }
}

impl ProblemKind {
    /// Its name, for people and in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Broken(rule) => rule.name(),
            Self::Failed => "failed",
            Self::Hung => "hung",
            Self::Left => "left",
        }
    }
}

/// A request and a lock, as in `SET/orders`. A known script has the last word of its name, as in `release/orders`.
pub(super) fn place(request: &Event, key: Option<&[u8]>) -> String {
    let script = request.text.as_deref().and_then(|name| name.split(' ').next_back());
    let command = match request.command.as_deref() {
        Some("EVALSHA") => "EVAL",
        command => command.unwrap_or_default(),
    };
    let command = script.unwrap_or(command);
    key.map_or(command.to_owned(), |key| format!("{command}/{}", pattern(key)))
}

/// The name of a lock in which `*` is in the place of each part with a digit.
pub(super) fn pattern(key: &[u8]) -> String {
    let name = shown(key, usize::MAX);
    let part = |part: &str| {
        let end = part.len() - usize::from(part.ends_with(PART_ENDS));
        let has_digit = part.contains(|char: char| char.is_ascii_digit());
        if has_digit { format!("*{}", &part[end..]) } else { part.to_owned() }
    };
    name.split_inclusive(PART_ENDS).map(part).collect()
}

/// The request that an event is, or belongs to.
pub(super) fn request_of(events: &[Event], id: u64) -> Option<&Event> {
    let event = events.iter().find(|event| event.id == id)?;
    let is_request = event.kind == EventKind::Request;
    if is_request { Some(event) } else { events.iter().find(|other| Some(other.id) == event.request) }
}

/// Where a part of a lock's name ends.
const PART_ENDS: [char; 3] = [':', '/', '.'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_same_with_other_numbers_in_the_name_of_the_lock() {
        for (key, shown) in [
            ("orders", "orders"),
            ("lock:order:8231", "lock:order:*"),
            ("7/orders.lock", "*/orders.lock"),
            ("lock:0f8fad5b-d9cb-469f-a165-70867728950e:pay", "lock:*:pay"),
            ("", "\"\""),
        ] {
            assert_eq!(pattern(key.as_bytes()), shown);
        }
    }

    #[test]
    fn an_id_begins_with_a_kind_of_findings() {
        for id in ["left/SET/orders", "two-holders/SET/lock:*", "hung/SUBSCRIBE"] {
            assert_eq!(Problem::read_id(id).as_deref(), Ok(id));
        }
        for wrong in ["left", "left/", "lost/SET/orders", ""] {
            assert!(Problem::read_id(wrong).is_err(), "{wrong}");
        }
    }
}
