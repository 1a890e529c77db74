//! What `redlatch top` knows, and what a key changes.
//!
//! Rule    no clock and no terminal: samples and keys come in, and the time since the last sample with them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use redlatch_client::{Client, Held};

use super::sample::{Info, Loss, NodeSample, Sample};
use crate::locks::texts::readable;

/// What is known of a server, and how it is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) address: String,
    pub(super) info: Info,
    pub(super) rates: Rates,
    /// How many nodes have answered last.
    answering: usize,
    locks: BTreeMap<Vec<u8>, Row>,
    /// Counts the passes over all locks of each node.
    passes: BTreeMap<String, u64>,
    pub(super) losses: VecDeque<Loss>,
    pub(super) sort: Sort,
    /// A part of the keys that are shown; empty for all.
    pub(super) filter: String,
    /// Whether keys go to the filter.
    pub(super) is_filtering: bool,
    pub(super) is_paused: bool,
    /// How many rows of the list are above the first that is shown.
    pub(super) scrolled: usize,
    /// Why the server is not asked now.
    pub(super) failure: Option<String>,
}

/// Of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) granted: f64,
    pub(super) refused: f64,
    pub(super) expired: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) held: Held,
    /// How long its first waiter has waited, in milliseconds, if that was asked for.
    pub(super) wait_ms: Option<u64>,
    node: String,
    pass: u64,
}

/// The column by which locks are sorted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Sort {
    /// The most waiters first.
    #[default]
    Waiters,
    /// The longest wait first.
    Wait,
    /// The longest hold first.
    Held,
    Key,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    End,
    GoOn,
}

impl State {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), ..Self::default() }
    }

    /// A sample has come, so long after the last one. While paused, nothing changes.
    pub(super) fn sample(&mut self, sample: Sample, since_last: Duration) {
        let Sample { nodes, missing } = sample;
        self.failure = (!missing.is_empty()).then(|| missing.join("; "));
        if self.is_paused {
            return;
        }
        let info: Info = nodes.iter().map(|node| node.info.clone()).sum();
        let seconds = since_last.as_secs_f64().max(0.001);
        // Counters that fall belong to another run of the server; without a last sample of the same nodes nothing has
        // happened yet.
        let is_new = std::mem::replace(&mut self.answering, nodes.len()) != nodes.len();
        let rate = |now: u64, last: u64| if is_new { 0.0 } else { now.saturating_sub(last) as f64 / seconds };
        self.rates = Rates {
            granted: rate(info.granted, self.info.granted),
            refused: rate(info.refused, self.info.refused),
            expired: rate(info.expired, self.info.expired),
        };
        self.info = info;
        if missing.is_empty() {
            self.locks.retain(|_, row| nodes.iter().any(|node| node.node == row.node));
        }
        nodes.into_iter().for_each(|node| self.locks_of(node));
    }

    /// What a node has shown of its locks.
    fn locks_of(&mut self, sample: NodeSample) {
        let NodeSample { node, locks, is_pass_over, waits, .. } = sample;
        let pass = self.passes.get(&node).copied().unwrap_or_default();
        for held in locks {
            if self.locks.len() < LOCKS_MAX || self.locks.contains_key(&held.key) {
                let wait_ms =
                    self.locks.get(&held.key).and_then(|row| row.wait_ms).filter(|_| held.waiters > 0);
                self.locks.insert(held.key.clone(), Row { held, wait_ms, node: node.clone(), pass });
            }
        }
        for (key, wait) in waits {
            if let Some(row) = self.locks.get_mut(&key) {
                row.wait_ms = Some(wait);
            }
        }
        if is_pass_over {
            self.locks.retain(|_, row| row.node != node || row.pass == pass);
            self.passes.insert(node, pass + 1);
        }
    }

    pub(super) fn lose(&mut self, loss: Loss) {
        if !self.is_paused {
            self.losses.push_front(loss);
            self.losses.truncate(LOSSES_MAX);
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Next {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return Next::End,
            _ if self.is_filtering => self.edit_filter(key.code),
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down => self.scroll(1),
            KeyCode::Up => self.scroll(-1),
            KeyCode::PageDown => self.scroll(PAGE),
            KeyCode::PageUp => self.scroll(-PAGE),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        Next::GoOn
    }

    fn edit_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_CHARS_MAX => {
                self.filter.push(letter)
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.scrolled = 0;
    }

    fn scroll(&mut self, rows: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.scrolled = self.scrolled.saturating_add_signed(rows).min(last);
    }

    /// The locks that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let is_shown = |row: &&Row| self.filter.is_empty() || readable(&row.held.key).contains(&self.filter);
        let mut rows: Vec<&Row> = self.locks.values().filter(is_shown).collect();
        // The sort is stable: what is equal stays by key.
        match self.sort {
            Sort::Waiters => rows.sort_by_key(|row| std::cmp::Reverse(row.held.waiters)),
            Sort::Wait => rows.sort_by_key(|row| std::cmp::Reverse(row.wait_ms)),
            Sort::Held => rows.sort_by_key(|row| std::cmp::Reverse(row.held_ms())),
            Sort::Key => {}
        }
        rows
    }

    /// How many locks are known.
    pub(super) fn known(&self) -> usize {
        self.locks.len()
    }

    /// The keys with the longest queues, whose waits are worth asking for, each with its node. A queue that is too long is
    /// left out.
    pub(super) fn longest(&self) -> Vec<(String, Vec<u8>)> {
        let mut rows: Vec<&Row> = self.locks.values().collect();
        rows.retain(|row| (1..=ASKED_WAITERS_MAX).contains(&row.held.waiters));
        rows.sort_by_key(|row| std::cmp::Reverse(row.held.waiters));
        rows.into_iter().map(|row| (row.node.clone(), row.held.key.clone())).take(LONGEST).collect()
    }

    /// The clients that hold most of the locks known, with how many.
    pub(super) fn clients(&self) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for holder in self.locks.values().flat_map(|row| &row.held.holders) {
            *counts.entry(holder.client.as_ref().map_or("gone".to_owned(), client)).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(CLIENTS_MAX);
        counts
    }
}

impl Row {
    /// How long the first holder has had it.
    pub(super) fn held_ms(&self) -> Option<u64> {
        self.held.holders.first().and_then(|holder| holder.held_ms)
    }
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Wait,
            Self::Wait => Self::Held,
            Self::Held => Self::Key,
            Self::Key => Self::Waiters,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Waiters => "waiting",
            Self::Wait => "longest wait",
            Self::Held => "held",
            Self::Key => "key",
        }
    }
}

/// A client in a few words: its name or library, and its address.
pub(super) fn client(client: &Client) -> String {
    let library = if client.name.is_empty() { &client.lib_name } else { &client.name };
    let words = if library.is_empty() { client.addr.clone() } else { format!("{library} {}", client.addr) };
    readable(words.as_bytes())
}

const LOCKS_MAX: usize = 10_000;
const LOSSES_MAX: usize = 50;
const CLIENTS_MAX: usize = 20;
/// Keys whose waits are asked for.
const LONGEST: usize = 10;
/// Waiters of a lock whose waits are asked for: the answer has an element for each.
const ASKED_WAITERS_MAX: u64 = 1_000;
const FILTER_CHARS_MAX: usize = 64;
const PAGE: isize = 10;
