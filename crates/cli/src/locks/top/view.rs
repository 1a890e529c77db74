//! How the state is drawn: a pure function, on a terminal of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, List, Paragraph, Row as TableRow, Table};

use super::state::{Row, Sort, State, client};
use crate::locks::texts::{duration, owner, readable};

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let [head, locks, foot, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(3),
        Constraint::Length(FOOT_LINES),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, state);
    draw_locks(frame, locks, state);
    let [losses, clients] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(foot);
    let lost = state.losses.iter().map(|loss| format!("{}  {}", loss.key, loss.what));
    draw_list(frame, losses, "lost locks, the last first", lost);
    let holders = state.clients().into_iter().map(|(client, count)| format!("{count:>5}  {client}"));
    draw_list(frame, clients, "clients by locks held", holders);
    draw_keys(frame, keys, state);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let (info, rates) = (&state.info, state.rates);
    let mut first = vec![Span::styled(
        format!("redlatch {} at {}", info.version, state.address),
        Style::new().add_modifier(Modifier::BOLD),
    )];
    let alarm = Style::new().add_modifier(Modifier::REVERSED);
    if let Some(failure) = &state.failure {
        first.push(Span::styled(format!("  {failure}"), alarm));
    } else {
        first.push(Span::raw(format!("  up {}", duration(info.uptime_secs * 1_000))));
    }
    if info.quarantine_left_ms > 0 {
        let left = duration(info.quarantine_left_ms);
        first.push(Span::styled(format!("  quarantine: nothing is granted for {left}"), alarm));
    }
    if let Some((client, age_ms)) = &info.script {
        first.push(Span::styled(
            format!("  a script of client {client} runs for {}", duration(*age_ms)),
            alarm,
        ));
    }
    let lines = vec![
        Line::from(first),
        Line::from(format!(
            "{} commands/s   clients {}, of which {} wait   memory {}",
            info.ops_per_sec,
            info.clients,
            info.blocked,
            size(info.memory_bytes)
        )),
        Line::from(format!(
            "held {}   waiting {}   granted {:.0}/s   refused {:.0}/s   expired {:.0}/s",
            info.held, info.waiters, rates.granted, rates.refused, rates.expired
        )),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_locks(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = state.rows();
    let filter = if state.filter.is_empty() { String::new() } else { format!(", with '{}'", state.filter) };
    let known = match (state.known() as u64) < state.info.held {
        true => format!("{} of {}", state.known(), state.info.held),
        false => state.known().to_string(),
    };
    let title = format!("locks: {known}{filter}, by {}", state.sort.name());
    let height = usize::from(area.height.saturating_sub(2));
    let shown = rows.iter().skip(state.scrolled).take(height).map(|row| table_row(row));
    let names = ["key", "holder", "client", "held", "lease left", "waiting", "longest wait"];
    let sorted = match state.sort {
        Sort::Key => 0,
        Sort::Held => 3,
        Sort::Waiters => 5,
        Sort::Wait => 6,
    };
    let head = names.iter().enumerate().map(|(index, name)| match index == sorted {
        true => Span::styled(*name, Style::new().add_modifier(Modifier::UNDERLINED)),
        false => Span::raw(*name),
    });
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(DURATION_WIDTH),
        Constraint::Length(DURATION_WIDTH),
        Constraint::Length(7),
        Constraint::Length(12),
    ];
    let table = Table::new(shown, widths)
        .header(TableRow::new(head.map(Line::from)).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}

fn table_row(row: &Row) -> TableRow<'static> {
    let held = &row.held;
    let first = held.holders.first();
    let others = match held.holders.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let time = |millis: Option<u64>| millis.map_or("-".to_owned(), duration);
    let lease = match first {
        Some(holder) if holder.session => "session".to_owned(),
        Some(holder) => time(holder.left_ms),
        None => "-".to_owned(),
    };
    TableRow::new([
        readable(&held.key),
        first.map(|holder| owner(held, holder)).unwrap_or_default() + &others,
        first.and_then(|holder| holder.client.as_ref()).map_or("gone".to_owned(), client),
        time(row.held_ms()),
        lease,
        held.waiters.to_string(),
        if held.waiters == 0 { "-".to_owned() } else { time(row.wait_ms) },
    ])
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, title: &'static str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.take(usize::from(area.height)).collect();
    frame.render_widget(List::new(items).block(Block::new().borders(Borders::TOP).title(title)), area);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let text = match (state.is_filtering, state.is_paused) {
        (true, _) => format!("filter: {}_   Enter keeps it, Escape clears it", state.filter),
        (false, true) => "PAUSED   p goes on   q ends".to_owned(),
        (false, false) => "q ends   p pauses   s sorts   / filters   arrows move".to_owned(),
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().add_modifier(Modifier::REVERSED)), area);
}

/// Bytes in their largest unit, as INFO writes them.
fn size(bytes: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / *unit as f64),
        None => format!("{bytes}B"),
    }
}

/// Columns for `23 h 59 min`.
const DURATION_WIDTH: u16 = 11;
/// Lines for losses and clients, with their title.
const FOOT_LINES: u16 = 7;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::locks::top::sample::{Info, Loss, NodeSample, Sample};
    use crate::locks::top::state::Next;
    use redlatch_client::{Client, Held, Holder};

    fn held(key: &str, owner: &str, waiters: u64, held_ms: u64) -> Held {
        let (mut client, mut holder, mut held) = (Client::default(), Holder::default(), Held::default());
        (client.addr, client.lib_name) = ("10.0.0.5:512".into(), "redis-py".into());
        (holder.owner, holder.client) = (owner.into(), Some(client));
        (holder.held_ms, holder.left_ms) = (Some(held_ms), Some(30_000 - held_ms));
        (held.key, held.holders, held.waiters) = (key.into(), vec![holder], waiters);
        held
    }

    /// The sample of a server that is in no cluster.
    fn of_one(node: NodeSample) -> Sample {
        Sample { nodes: vec![node], ..Sample::default() }
    }

    fn sample() -> NodeSample {
        NodeSample {
            node: "127.0.0.1:6379".into(),
            info: Info {
                version: "0.1.0".into(),
                uptime_secs: 3_723,
                clients: 210,
                blocked: 12,
                ops_per_sec: 12_345,
                memory_bytes: 1_258_291,
                held: 3,
                waiters: 9,
                granted: 1_000,
                refused: 70,
                ..Info::default()
            },
            locks: vec![
                held("lock:a", "worker-1", 2, 500),
                held("lock:b\x1b[2J", "worker-2", 7, 1_500),
                held("stock", "worker-3", 0, 29_000),
            ],
            is_pass_over: true,
            waits: [(b"lock:a".to_vec(), 4_182)].into(),
        }
    }

    fn state() -> State {
        let mut state = State::new("127.0.0.1:6379");
        state.sample(of_one(sample()), Duration::from_secs(1));
        let mut next = sample();
        next.info.granted = 1_500;
        state.sample(of_one(next), Duration::from_secs(2));
        state.lose(Loss { key: "lock:x".into(), what: "41 expired".into() });
        state
    }

    fn shown(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = (0..height).map(|y| {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
            line.trim_end().to_owned() + "\n"
        });
        lines.collect()
    }

    fn press(state: &mut State, keys: &[KeyCode]) {
        for key in keys {
            assert_eq!(state.press(KeyEvent::new(*key, KeyModifiers::NONE)), Next::GoOn);
        }
    }

    #[test]
    fn a_server_is_shown_with_its_locks_its_losses_and_its_clients() {
        let expected = SNAPSHOT.trim_start().replace('~', "\u{2500}");
        assert_eq!(shown(&state(), 110, 18), expected);
    }

    #[test]
    fn keys_sort_filter_pause_and_end() {
        let mut state = state();
        let first = |state: &State| readable(&state.rows()[0].held.key);
        assert_eq!(first(&state), "lock:b\\x1b[2J");
        press(&mut state, &[KeyCode::Char('s')]);
        assert_eq!(first(&state), "lock:a", "by the longest wait");
        press(&mut state, &[KeyCode::Char('s')]);
        assert_eq!(first(&state), "stock", "by the longest hold");
        press(&mut state, &"/qs".chars().map(KeyCode::Char).collect::<Vec<_>>());
        assert!(state.rows().is_empty() && shown(&state, 110, 18).contains("filter: qs_"));
        press(&mut state, &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Char('s'), KeyCode::Enter]);
        assert!(shown(&state, 110, 18).contains("locks: 3, with 's', by held"));
        press(&mut state, &[KeyCode::Esc, KeyCode::Down, KeyCode::PageDown]);
        assert_eq!(state.scrolled, 2, "the last row stays");
        press(&mut state, &[KeyCode::Char('p')]);
        let nothing = of_one(NodeSample { locks: Vec::new(), ..sample() });
        state.sample(nothing.clone(), Duration::from_secs(1));
        assert_eq!(state.known(), 3, "paused");
        press(&mut state, &[KeyCode::Char('p')]);
        state.sample(nothing, Duration::from_secs(1));
        assert_eq!(state.known(), 0);
        assert_eq!(state.press(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)), Next::End);
        assert_eq!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Next::End);
    }

    #[test]
    fn any_size_of_terminal_will_do() {
        let mut state = state();
        state.failure = Some("the server has closed the connection".into());
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100), (65, 2)] {
            let _ = shown(&state, width, height);
        }
        assert!(shown(&state, 110, 18).contains("the server has closed the connection"));
    }

    #[test]
    fn a_script_that_runs_for_long_is_shown_and_the_locks_stay() {
        let mut state = state();
        let info = Info { script: Some(("7 worker".into(), 61_000)), ..sample().info };
        let script = NodeSample { info, locks: Vec::new(), is_pass_over: false, ..sample() };
        state.sample(of_one(script), Duration::from_secs(1));
        assert!(shown(&state, 110, 18).contains("  a script of client 7 worker runs for 1 min 1 s"));
        assert_eq!(state.known(), 3);
    }

    #[test]
    fn a_lock_stays_until_a_whole_pass_has_not_found_it() {
        let mut state = state();
        let part = NodeSample { locks: vec![held("lock:a", "w", 0, 1)], ..sample() };
        state.sample(of_one(NodeSample { is_pass_over: false, ..part.clone() }), Duration::from_secs(1));
        assert_eq!(state.known(), 3);
        state.sample(of_one(part), Duration::from_secs(1));
        assert_eq!(state.known(), 1);
    }

    #[test]
    fn the_nodes_of_a_cluster_add_up_and_one_that_is_missing_keeps_its_locks() {
        let (here, there) = (sample(), NodeSample { node: "there:6379".into(), ..sample() });
        let there = NodeSample { locks: vec![held("other", "w", 8, 1)], ..there };
        let mut state = State::new("127.0.0.1:6379");
        let both = Sample { nodes: vec![here.clone(), there], ..Sample::default() };
        state.sample(both, Duration::from_secs(1));
        assert_eq!((state.known(), state.info.held, state.info.memory_bytes), (4, 6, 2 * 1_258_291));
        assert_eq!(state.longest()[0], ("there:6379".to_owned(), b"other".to_vec()));
        let missing = vec!["there:6379: no answer".to_owned()];
        state.sample(Sample { nodes: vec![here.clone()], missing }, Duration::from_secs(1));
        assert_eq!(state.known(), 4);
        assert!(shown(&state, 110, 18).contains("there:6379: no answer"));
        state.sample(of_one(here), Duration::from_secs(1));
        assert_eq!((state.known(), &state.failure), (3, &None));
    }

    /// `~` is a horizontal line.
    const SNAPSHOT: &str = "
redlatch 0.1.0 at 127.0.0.1:6379  up 1 h 2 min
12345 commands/s   clients 210, of which 12 wait   memory 1.20M
held 3   waiting 9   granted 250/s   refused 0/s   expired 0/s
locks: 3, by waiting~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
key                         holder             client             held        lease left  waiting longest wait
lock:b\\x1b[2J               worker-2           redis-py 10.0.0.5: 1.5 s       28.5 s      7       -
lock:a                      worker-1           redis-py 10.0.0.5: 500 ms      29.5 s      2       4.1 s
stock                       worker-3           redis-py 10.0.0.5: 29 s        1 s         0       -


lost locks, the last first~~~~~~~~~~~~~~~~~~~~~~~~~~~~~clients by locks held~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
lock:x  41 expired                                         3  redis-py 10.0.0.5:512





q ends   p pauses   s sorts   / filters   arrows move
";
}
