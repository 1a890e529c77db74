//! A history as a picture: a lane for each client, with what it holds, waits for and does.
//!
//! Owns    [`Timeline`], the marks of every lane at every step; and its form as text. A step is an event, not a length of
//!         time: under a clock that tests move, most events happen in one instant.
//! Rule    a request and its reply are one step if nothing happened between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bytes::Bytes;
use redlatch_core::state::clients::ClientId;

use super::event::{Event, EventKind, shown};

/// What a lane shows at a step.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Mark {
    /// A fault acts on the client.
    Fault,
    /// The lease of its lock ends.
    Expired,
    /// It gets a lock.
    Granted,
    /// It has no lock any more.
    Released,
    /// Its lease begins anew.
    Renewed,
    /// It sends a request, or gets a reply.
    Request,
}

/// A client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lane {
    /// Its name, or its number.
    pub name: String,
    /// Its library.
    pub library: String,
}

/// One row of the picture.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// When, in Unix milliseconds of the clock.
    pub at: u64,
    /// The lane, if the step is about a client.
    pub lane: Option<usize>,
    /// What its lane shows.
    pub mark: Option<Mark>,
    /// What happened.
    pub text: String,
    /// The token of a grant.
    pub token: Option<u64>,
}

/// From one step to another, of one lane.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// The lane.
    pub lane: usize,
    /// The lock; of a wait, what the request names.
    pub key: String,
    /// The fencing token, of a hold.
    pub token: Option<u64>,
    /// The step it begins with.
    pub from: usize,
    /// The step it ends with; that of the last event if it has not ended.
    pub to: usize,
}

/// A history as lanes and steps.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The clients that do something, in the order of their first requests.
    pub lanes: Vec<Lane>,
    /// What happens.
    pub steps: Vec<Step>,
    /// Locks that are held.
    pub holds: Vec<Span>,
    /// Requests that wait.
    pub waits: Vec<Span>,
    /// Steps before the first that are left out.
    pub left_out: usize,
}

/// How much of a timeline its text has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Extent {
    /// Every step.
    All,
    /// The last steps, as many as a screen shows. Equal requests between two changes of locks are one row.
    #[default]
    Screen,
}

impl Extent {
    /// The variable of the environment that asks for [`Extent::All`].
    pub const VARIABLE: &'static str = "REDLATCH_TIMELINE";

    /// What the value of [`Extent::VARIABLE`] asks for. `all`: everything. Default: a screen.
    pub fn of(value: Option<&str>) -> Self {
        if value == Some("all") { Self::All } else { Self::Screen }
    }
}

/// A row of the text: a step, and those that it stands for.
struct Row {
    step: usize,
    /// How many equal steps it stands for, beside itself.
    more: usize,
    /// The last of them.
    last: usize,
}

/// Rows of a screen.
const ROWS_MAX: usize = 28;
/// Clients of a screen that have a column.
const LANES_MAX: usize = 12;
/// Commands that say nothing about locks: they are left out.
const SILENT: &[&str] = &["AUTH", "CLIENT", "COMMAND", "HELLO", "INFO", "PING", "QUIT", "SCRIPT", "SELECT"];
/// Steps that are shown; earlier ones are left out.
const STEPS_MAX: usize = 2000;
/// Characters of the text of a step.
const TEXT_CHARS_MAX: usize = 100;

impl Timeline {
    /// The picture of a history.
    pub fn of(events: &[Event]) -> Self {
        Builder::default().build(events)
    }

    /// As text: a row for each step, a column for each lane.
    pub fn text(&self, extent: Extent) -> String {
        let mut out = String::new();
        if self.steps.is_empty() {
            return "nothing has happened\n".to_owned();
        }
        let mut rows = self.rows(extent);
        let cut = if extent == Extent::Screen { rows.len().saturating_sub(ROWS_MAX) } else { 0 };
        let left_out = self.left_out + rows.drain(..cut).map(|row| 1 + row.more).sum::<usize>();
        let lanes = self.lanes_of(&rows, extent);
        for &number in &lanes {
            let lane = &self.lanes[number];
            let library =
                if lane.library.is_empty() { String::new() } else { format!(" ({})", lane.library) };
            // Writing to a String cannot fail.
            _ = writeln!(out, "{:>12} {}{library}", sign(number), lane.name);
        }
        if left_out > 0 {
            let hint = format!(": {}=all shows them", Extent::VARIABLE);
            let hint = if cut > 0 { &hint } else { "" };
            _ = writeln!(out, "\n{left_out:>12} earlier steps are left out{hint}");
        }
        let heads: String = lanes.iter().map(|number| format!(" {}", sign(*number))).collect();
        _ = writeln!(out, "\n{:>12}{heads}", "seconds");
        let begin = self.steps[0].at;
        let mut before = None;
        for row in &rows {
            let step = &self.steps[row.step];
            let time = if before == Some(step.at) { String::new() } else { seconds(begin, step.at) };
            before = Some(step.at);
            let letters: String =
                lanes.iter().map(|lane| format!("{} ", self.letter(*lane, row.step))).collect();
            let more = match row.more {
                0 => String::new(),
                more => format!(" ({more} more until {})", seconds(begin, self.steps[row.last].at)),
            };
            _ = writeln!(out, "{time:>12} {letters} {}{more}", step.text);
        }
        out.push_str(LEGEND);
        out
    }

    /// The rows of the text. Those of a screen are one for equal steps between which no lock has changed.
    fn rows(&self, extent: Extent) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        // The rows since the last change of a lock, by what they say.
        let mut quiet: BTreeMap<(Option<usize>, &str), usize> = BTreeMap::new();
        for (at, step) in self.steps.iter().enumerate() {
            if !matches!(step.mark, None | Some(Mark::Request)) || extent == Extent::All {
                quiet.clear();
            }
            let said = (step.lane, step.text.as_str());
            match quiet.get(&said).map(|row| &mut rows[*row]) {
                Some(row) => (row.more, row.last) = (row.more + 1, at),
                None => {
                    quiet.insert(said, rows.len());
                    rows.push(Row { step: at, more: 0, last: at });
                }
            }
        }
        rows
    }

    /// The lanes that have a column. On a screen, those that do something there come first, and then those that hold or wait.
    fn lanes_of(&self, rows: &[Row], extent: Extent) -> Vec<usize> {
        if extent == Extent::All {
            return (0..self.lanes.len()).collect();
        }
        let active: BTreeSet<usize> = rows.iter().filter_map(|row| self.steps[row.step].lane).collect();
        let idle = (0..self.lanes.len()).filter(|lane| !active.contains(lane));
        let idle = idle.filter(|lane| rows.iter().any(|row| self.letter(*lane, row.step) != '.'));
        let mut lanes: Vec<usize> = active.iter().copied().chain(idle).take(LANES_MAX).collect();
        lanes.sort_unstable();
        lanes
    }

    /// What a lane holds and waits for at a step.
    pub(super) fn spans(&self, lane: usize, at: usize) -> (Option<&Span>, Option<&Span>) {
        let covers = |span: &&Span| span.lane == lane && (span.from..=span.to).contains(&at);
        (self.holds.iter().find(covers), self.waits.iter().find(covers))
    }

    /// What a lane shows at a step, as a letter.
    pub(super) fn letter(&self, lane: usize, at: usize) -> char {
        let step = &self.steps[at];
        let (hold, wait) = self.spans(lane, at);
        let mark = step.mark.filter(|_| step.lane == Some(lane));
        match mark {
            Some(Mark::Fault) => '!',
            Some(Mark::Expired) => 'X',
            Some(Mark::Granted) => '#',
            Some(Mark::Released) => '-',
            Some(Mark::Renewed) => '+',
            _ if hold.is_some() => '#',
            _ if wait.is_some() => ':',
            Some(Mark::Request) => 'o',
            None => '.',
        }
    }
}

/// The letter over the column of a lane.
fn sign(lane: usize) -> char {
    let signs = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    signs.get(lane).map_or('?', |sign| char::from(*sign))
}

/// The time since the beginning, as `+1.234`.
pub(super) fn seconds(begin: u64, at: u64) -> String {
    let (sign, millis) = if at < begin { ('-', begin - at) } else { ('+', at - begin) };
    format!("{sign}{}.{:03}", millis / 1000, millis % 1000)
}

pub(super) const LEGEND: &str =
    "\n# holds   + renews   - releases   X the lease ends   : waits   o asks   ! a fault acts   . nothing\n";

#[derive(Default)]
struct Builder {
    picture: Timeline,
    /// The lane of each client, by node and number.
    lanes: BTreeMap<(u16, ClientId), usize>,
    /// The lane of each name.
    names: BTreeMap<String, usize>,
    /// Holds that have not ended, by node, key and token.
    open: BTreeMap<(u16, Bytes, u64), usize>,
    /// Requests without a reply, with the step they are in.
    waiting: BTreeMap<u64, (usize, String)>,
    /// Requests that are not shown.
    silent: BTreeSet<u64>,
    nodes: BTreeSet<u16>,
}

impl Builder {
    fn build(mut self, events: &[Event]) -> Timeline {
        self.nodes = events.iter().map(|event| event.node).collect();
        for event in events {
            match event.kind {
                // The requests show it.
                EventKind::Connect | EventKind::Missed | EventKind::Refused | EventKind::Waits => {}
                EventKind::Disconnect => self.gone(event),
                EventKind::Request => self.request(event),
                EventKind::Reply => self.reply(event),
                EventKind::Granted => self.granted(event),
                EventKind::Renewed => _ = self.step(event, Some(Mark::Renewed)),
                EventKind::Released => self.ended(event, Mark::Released),
                EventKind::Expired => self.ended(event, Mark::Expired),
                EventKind::Fault => _ = self.step(event, Some(Mark::Fault)),
                EventKind::Failover => _ = self.step(event, None),
            }
        }
        let last = self.picture.steps.len().saturating_sub(1);
        for index in self.open.into_values() {
            self.picture.holds[index].to = last;
        }
        for (from, key) in self.waiting.into_values() {
            if let Some(lane) = self.picture.steps[from].lane.filter(|_| from < last) {
                self.picture.waits.push(Span { lane, key, token: None, from, to: last });
            }
        }
        self.picture.keep_last(STEPS_MAX);
        self.picture
    }

    /// The lane of a client. Connections of one name share a lane.
    fn lane(&mut self, event: &Event) -> Option<usize> {
        let client = (event.node, event.client?);
        let known = self.lanes.get(&client).copied();
        if event.name.is_empty()
            && let Some(lane) = known
        {
            return Some(lane);
        }
        let name = match event.node {
            node if event.name.is_empty() && self.nodes.len() > 1 => {
                format!("{} on node {node}", event.who())
            }
            _ => event.who(),
        };
        let lanes = &mut self.picture.lanes;
        let lane = match (self.names.get(&name), known) {
            (Some(lane), _) => *lane,
            // It has had no name until now.
            (None, Some(lane)) if lanes[lane].name.starts_with("client ") => {
                lanes[lane].name.clone_from(&name);
                lane
            }
            _ => {
                lanes.push(Lane { name: name.clone(), library: event.library.to_string() });
                lanes.len() - 1
            }
        };
        if lanes[lane].library.is_empty() {
            lanes[lane].library = event.library.to_string();
        }
        self.names.insert(name, lane);
        self.lanes.insert(client, lane);
        Some(lane)
    }

    /// Adds a step; returns its number.
    fn step(&mut self, event: &Event, mark: Option<Mark>) -> usize {
        let lane = self.lane(event);
        let node = if self.nodes.len() > 1 && event.kind != EventKind::Failover {
            format!("node {}: ", event.node)
        } else {
            String::new()
        };
        let who = match lane {
            Some(lane) => format!("{} ", self.picture.lanes[lane].name),
            None => String::new(),
        };
        let text = shown(format!("{node}{who}{}", event.what()).as_bytes(), TEXT_CHARS_MAX);
        let token = event.token.filter(|_| event.kind == EventKind::Granted);
        self.picture.steps.push(Step { at: event.at, lane, mark, text, token });
        self.picture.steps.len() - 1
    }

    fn request(&mut self, event: &Event) {
        let command = event.command.as_deref().unwrap_or_default();
        if SILENT.iter().any(|silent| command.split(' ').next() == Some(silent)) {
            self.silent.insert(event.id);
            return;
        }
        if command.starts_with("TEST.") {
            // What the test does to the bench concerns all lanes.
            self.silent.insert(event.id);
            let (at, text) = (event.at, format!("-- {}", shown(event.what().as_bytes(), TEXT_CHARS_MAX)));
            self.picture.steps.push(Step { at, lane: None, mark: None, text, token: None });
            return;
        }
        let step = self.step(event, Some(Mark::Request));
        let key = event.key.as_ref().map(|key| shown(key, 40)).unwrap_or_default();
        self.waiting.insert(event.id, (step, key));
    }

    fn reply(&mut self, event: &Event) {
        let Some(request) = event.request.filter(|request| !self.silent.remove(request)) else { return };
        let waited = self.waiting.remove(&request);
        let steps = &mut self.picture.steps;
        match waited {
            // Changes of locks may lie between, if they are the request's own.
            Some((from, _)) if steps[from].at == event.at && self.is_quick(from, event) => {
                let steps = &mut self.picture.steps;
                let text = format!("{} {}", steps[from].text, event.what());
                steps[from].text = shown(text.as_bytes(), TEXT_CHARS_MAX + 30);
            }
            Some((from, key)) => {
                let to = self.step(event, Some(Mark::Request));
                if let Some(lane) = self.picture.steps[to].lane {
                    self.picture.waits.push(Span { lane, key, token: None, from, to });
                }
                let waited = event.at.saturating_sub(self.picture.steps[from].at);
                let command = event.command.as_deref().unwrap_or_default();
                let text = format!(" to {command} after {}.{:03} s", waited / 1000, waited % 1000);
                self.picture.steps[to].text.push_str(&text);
            }
            None => _ = self.step(event, Some(Mark::Request)),
        }
    }

    /// A client has gone. That is shown if a request of it has no reply.
    fn gone(&mut self, event: &Event) {
        let Some(lane) = event.client.and_then(|client| self.lanes.get(&(event.node, client))).copied()
        else {
            return;
        };
        let steps = &self.picture.steps;
        let mut open = self.waiting.iter().filter(|(_, (from, _))| steps[*from].lane == Some(lane));
        let Some(request) = open.next().map(|(request, _)| *request) else { return };
        if let Some((from, key)) = self.waiting.remove(&request) {
            let to = self.step(event, Some(Mark::Request));
            self.picture.waits.push(Span { lane, key, token: None, from, to });
        }
    }

    /// Whether no other client has done anything since a step.
    fn is_quick(&self, from: usize, event: &Event) -> bool {
        let lane = event.client.and_then(|client| self.lanes.get(&(event.node, client))).copied();
        let since = &self.picture.steps[from + 1..];
        since.iter().all(|step| step.mark != Some(Mark::Request) || step.lane == lane)
    }

    fn granted(&mut self, event: &Event) {
        let from = self.step(event, Some(Mark::Granted));
        let (Some(lane), Some(key)) = (self.picture.steps[from].lane, &event.key) else { return };
        let token = event.token;
        let span = Span { lane, key: shown(key, 40), token, from, to: from };
        self.picture.holds.push(span);
        let index = self.picture.holds.len() - 1;
        self.open.insert((event.node, key.clone(), token.unwrap_or(0)), index);
    }

    fn ended(&mut self, event: &Event, mark: Mark) {
        let step = self.step(event, Some(mark));
        let Some(key) = &event.key else { return };
        if let Some(index) = self.open.remove(&(event.node, key.clone(), event.token.unwrap_or(0))) {
            self.picture.holds[index].to = step;
        }
    }
}

impl Timeline {
    /// Leaves out all but the last steps.
    fn keep_last(&mut self, count: usize) {
        let out = self.steps.len().saturating_sub(count);
        if out == 0 {
            return;
        }
        self.left_out = out;
        self.steps.drain(..out);
        for spans in [&mut self.holds, &mut self.waits] {
            spans.retain(|span| span.to >= out);
            for span in spans {
                (span.from, span.to) = (span.from.saturating_sub(out), span.to - out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, at: u64, name: &str, kind: EventKind, about: &str) -> Event {
        let client = if name == "B" { 2 } else { 1 };
        let event = Event {
            id,
            at: 1_700_000_000_000 + at,
            client: Some(client),
            name: name.into(),
            key: Some("lock".into()),
            ..Event::new(kind)
        };
        match kind {
            EventKind::Request => {
                let mut words = about.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes()));
                let command = words.next().map(|name| String::from_utf8_lossy(&name).into());
                Event { command, args: words.collect(), ..event }
            }
            EventKind::Reply => {
                let (request, reply) = about.split_once(' ').unwrap();
                let command = Some("LOCK.ACQUIRE".into());
                Event { request: request.parse().ok(), reply: Some(reply.to_owned()), command, ..event }
            }
            _ => Event { token: about.parse().ok(), lease: Some(30_000), ..event },
        }
    }

    fn history() -> Vec<Event> {
        use EventKind::{Expired, Granted, Renewed, Reply, Request};
        vec![
            event(1, 0, "A", Request, "SET lock a NX PX 30000"),
            event(2, 0, "A", Granted, "1"),
            event(3, 0, "A", Reply, "1 OK"),
            event(4, 10, "B", Request, "LOCK.ACQUIRE lock b WAIT 99999"),
            event(5, 9_000, "A", Renewed, "1"),
            event(6, 9_500, "A", Request, "PING"),
            event(7, 9_500, "A", Reply, "6 PONG"),
            event(8, 39_001, "A", Expired, "1"),
            event(9, 39_001, "B", Granted, "2"),
            event(10, 39_001, "B", Reply, "4 [token, 2]"),
        ]
    }

    #[test]
    fn a_text_shows_who_holds_who_waits_and_when() {
        let text = Timeline::of(&history()).text(Extent::Screen);
        let expected = "           A A
           B B

     seconds A B
      +0.000 o .  A SET lock a NX PX 30000 -> OK
             # .  A holds lock, token 1 for 30000 ms
      +0.010 # :  B LOCK.ACQUIRE lock b WAIT 99999
      +9.000 + :  A renews lock, token 1 for 30000 ms
     +39.001 X :  A the lease of lock has ended, token 1
             . #  B holds lock, token 2 for 30000 ms
             . #  B -> [token, 2] to LOCK.ACQUIRE after 38.991 s
";
        assert_eq!(text.strip_suffix(LEGEND).unwrap(), expected);
        assert_eq!(Timeline::of(&history()).text(Extent::All), text, "it fits a screen");
        assert_eq!(Timeline::of(&[]).text(Extent::Screen), "nothing has happened\n");
    }

    #[test]
    fn equal_requests_are_one_row_of_a_screen_until_a_lock_changes() {
        let mut events = history();
        for number in 0..100 {
            let at = 40_000 + 10 * number;
            events.push(event(100 + 2 * number, at, "A", EventKind::Request, "SET lock a NX PX 30000"));
            events.push(event(
                101 + 2 * number,
                at,
                "A",
                EventKind::Reply,
                &format!("{} nil", 100 + 2 * number),
            ));
        }
        events.push(event(999, 41_000, "B", EventKind::Renewed, "2"));
        events.push(event(1_000, 41_001, "A", EventKind::Request, "SET lock a NX PX 30000"));
        let picture = Timeline::of(&events);
        let text = picture.text(Extent::Screen);
        assert!(text.contains("A SET lock a NX PX 30000 -> nil (99 more until +40.990)\n"), "{text}");
        assert_eq!(text.matches("SET lock a NX PX 30000").count(), 3, "{text}");
        assert!(!text.contains("left out"), "{text}");
        assert_eq!(picture.text(Extent::All).matches("SET lock a NX PX 30000").count(), 102);
    }

    #[test]
    fn a_text_fits_a_screen_however_much_has_happened() {
        let mut events = Vec::new();
        for client in 0..500_u64 {
            let about = format!("GET key:{client}");
            let one = event(1 + client, client, &format!("client-{client:03}"), EventKind::Request, &about);
            events.push(Event { client: Some(client), ..one });
        }
        let picture = Timeline::of(&events);
        let text = picture.text(Extent::Screen);
        assert!(text.lines().count() <= 50, "{text}");
        assert!(text.contains("client-499 GET key:499\n") && !text.contains("client-400"), "{text}");
        let left_out = 500 - ROWS_MAX;
        assert!(
            text.contains(&format!(
                "{left_out} earlier steps are left out: REDLATCH_TIMELINE=all shows them\n"
            ))
        );
        let all = picture.text(Extent::of(Some("all")));
        assert!(all.contains("client-000 GET key:0\n") && !all.contains("left out"), "{all}");
        assert_eq!([Extent::of(None), Extent::of(Some("yes"))], [Extent::Screen; 2]);
    }

    #[test]
    fn a_long_history_shows_its_end() {
        let mut events = history();
        for id in 0..STEPS_MAX as u64 {
            events.push(event(11 + id, 40_000 + id, "C", EventKind::Request, "GET x"));
        }
        let picture = Timeline::of(&events);
        assert_eq!((picture.steps.len(), picture.left_out), (STEPS_MAX, 7));
        let span = picture.holds.iter().find(|span| span.token == Some(2)).unwrap();
        assert_eq!((span.from, span.to), (0, STEPS_MAX - 1), "it is held still");
        assert!(picture.holds.iter().all(|span| span.to < STEPS_MAX));
    }
}
