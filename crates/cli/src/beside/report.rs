//! The report of `redlatch doctor`, for people and for programs.

use std::collections::BTreeSet;
use std::time::Duration;

use redlatch_proto::log_name::readable;
use serde_json::{Value, json};

use super::diagnosis::{Finding, Severity};
use crate::common::duration;
use crate::common::exit::{DONE, NO};

#[derive(Debug)]
pub(super) struct Report {
    /// The server, without the login.
    pub(super) url: String,
    pub(super) observed: Duration,
    pub(super) requests: u64,
    pub(super) rounds: u64,
    /// How often the server could not be read for a while.
    pub(super) gaps: u64,
    /// Keys of the last round.
    pub(super) keys: u64,
    /// Locks that are held.
    pub(super) locks: usize,
    /// The worst first.
    pub(super) findings: Vec<Finding>,
    /// What the login may not do, and what the server lacks.
    pub(super) forbidden: BTreeSet<String>,
    pub(super) shows_owners: bool,
}

impl Report {
    /// The exit status: no, if there is an error.
    pub(super) fn status(&self) -> u8 {
        match self.findings.iter().any(|finding| finding.severity == Severity::Error) {
            true => NO,
            false => DONE,
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { url, requests, keys, locks, .. } = self;
        let observed = duration::written(self.observed);
        let mut text = format!("{url}: {locks} locks among {keys} keys; {requests} requests in {observed}\n");
        if self.gaps > 0 {
            text.push_str(&format!(
                "The server could not be read {} times: calls may be missing.\n",
                self.gaps
            ));
        }
        if !self.forbidden.is_empty() {
            let words: Vec<&str> = self.forbidden.iter().map(String::as_str).collect();
            text.push_str(&format!("The server refuses a part of the reading: {}\n", words.join(", ")));
        }
        self.findings.iter().for_each(|finding| text.push_str(&self.line(finding)));
        if self.findings.is_empty() {
            let part = if self.forbidden.is_empty() { "" } else { " in the part that was read" };
            text.push_str(&format!("Nothing was found{part}.\n"));
        }
        text
    }

    fn line(&self, finding: &Finding) -> String {
        let Finding { severity, rule, text, advice, .. } = finding;
        let of = finding.lock.as_ref().map(|(key, owner)| {
            let owner = owner.as_ref().filter(|_| self.shows_owners);
            let owner = owner.map(|owner| format!(" of {}", readable(owner))).unwrap_or_default();
            format!("{}{owner}: ", readable(key))
        });
        format!("{:<8} {rule:<12} {}{text}; {advice}\n", severity.name(), of.unwrap_or_default())
    }

    pub(super) fn value(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            let (key, owner) = finding.lock.as_ref().map(|(key, owner)| (key, owner.as_ref())).unzip();
            let owner = owner.flatten().filter(|_| self.shows_owners);
            json!({
                "severity": finding.severity.name(),
                "rule": finding.rule,
                "key": key.map(|key| readable(key)),
                "owner": owner.map(|owner| readable(owner)),
                "text": finding.text,
                "advice": finding.advice,
            })
        });
        json!({
            "server": self.url,
            "observed_ms": u64::try_from(self.observed.as_millis()).unwrap_or(u64::MAX),
            "requests": self.requests,
            "rounds": self.rounds,
            "gaps": self.gaps,
            "keys": self.keys,
            "locks": self.locks,
            "forbidden": self.forbidden,
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}
