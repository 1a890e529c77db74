//! Variants of the protocol in which one rule is left out, and the promise that dies with it.

use super::protocol::Promise;

/// Which rule is left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mutant {
    None,
    AddsToTriedEntry,
    AnswersAfterHandOver,
    BelievesForTakeover,
    BelievesFromAnswer,
    CommitsWithoutEpoch,
    CommitsWithoutHead,
    LockTimeNotResumed,
    MistakesHead,
    ReadsWithoutProof,
    RepliesBeforeCommit,
    SwapsWithoutHead,
    TakesOverFromLiving,
    TokensNotResumed,
}

/// A mutant, the rule that it leaves out, where that rule is, and the promise that the checker must find broken.
pub(super) struct Row {
    pub(super) mutant: Mutant,
    pub(super) left_out: &'static str,
    pub(super) rule_is_in: &'static str,
    pub(super) breaks: Promise,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        mutant: Mutant::AddsToTriedEntry,
        left_out: "an entry that may be in etcd is tried again as it is",
        rule_is_in: "State::append in replication/term.rs",
        breaks: Promise::WhatWasAnsweredStays,
    },
    Row {
        mutant: Mutant::AnswersAfterHandOver,
        left_out: "a leader that hands over answers nobody any more",
        rule_is_in: "Log::stop in journal/log.rs",
        breaks: Promise::ReadsAreLinearizable,
    },
    Row {
        mutant: Mutant::BelievesForTakeover,
        left_out: "a leader believes for four fifths of takeover, because clocks differ",
        rule_is_in: "Term::believed_ms in replication/term.rs",
        breaks: Promise::ReadsAreLinearizable,
    },
    Row {
        mutant: Mutant::BelievesFromAnswer,
        left_out: "belief is counted from the beginning of the commit",
        rule_is_in: "Log::sync in journal/log.rs",
        breaks: Promise::ReadsAreLinearizable,
    },
    Row {
        mutant: Mutant::CommitsWithoutEpoch,
        left_out: "a commit has the condition that the epoch is the leader's: the fence",
        rule_is_in: "Term::commit in replication/term.rs",
        breaks: Promise::NoLockTwice,
    },
    Row {
        mutant: Mutant::CommitsWithoutHead,
        left_out: "a commit has the condition that the head is its number",
        rule_is_in: "Term::commit in replication/term.rs",
        breaks: Promise::WhatWasAnsweredStays,
    },
    Row {
        mutant: Mutant::LockTimeNotResumed,
        left_out: "lock time goes on at the last one in the log",
        rule_is_in: "resume_whole in journal/recovery.rs",
        breaks: Promise::NoLockTwice,
    },
    Row {
        mutant: Mutant::MistakesHead,
        left_out: "an entry counts as committed earlier only if the epoch stands",
        rule_is_in: "Term::committed_at in replication/term.rs",
        breaks: Promise::WhatWasAnsweredStays,
    },
    Row {
        mutant: Mutant::ReadsWithoutProof,
        left_out: "a reply waits for belief, or for a commit that began after the request was executed",
        rule_is_in: "Log::has in journal/log.rs",
        breaks: Promise::ReadsAreLinearizable,
    },
    Row {
        mutant: Mutant::RepliesBeforeCommit,
        left_out: "a reply waits until what it tells of is committed",
        rule_is_in: "Log::has in journal/log.rs",
        breaks: Promise::WhatWasAnsweredStays,
    },
    Row {
        mutant: Mutant::SwapsWithoutHead,
        left_out: "the epoch is swapped only if the head is as it was seen",
        rule_is_in: "Standby::seize in replication/standby.rs",
        breaks: Promise::ReadsAreLinearizable,
    },
    Row {
        mutant: Mutant::TakesOverFromLiving,
        left_out: "a head that has moved begins the wait of a standby anew",
        rule_is_in: "Standby::sight in replication/standby.rs",
        breaks: Promise::ReadsAreLinearizable,
    },
    Row {
        mutant: Mutant::TokensNotResumed,
        left_out: "tokens go on above those in the log",
        rule_is_in: "Keyspace::raise_tokens, called by the leader when it restores the keys",
        breaks: Promise::TokensRise,
    },
];
