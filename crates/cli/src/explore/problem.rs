//! What can be wrong in a run.

use redlatch_core::locks::Rule;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
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
