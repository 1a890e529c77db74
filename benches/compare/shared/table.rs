//! Results as Markdown, for the terminal and for README.md.
//!
//! Rule    medians of the rounds; first the cost of requests, with redlatch's share and multiple; then the rest.

use std::fmt::Write as _;

use super::results::{CPU_PER_REQUEST, Figure, HAND_OFF, HERD, LIMIT, OURS, Results, VALKEY, ratio};

/// The two ways to send requests, as the figures of a load are called.
const MODES: [&str; 2] = ["plain", "pipelined"];

/// All tables, and the facts about the machine.
pub(crate) fn markdown(results: &Results) -> String {
    format!("{}{}{}{}", costs(results), hand_offs(results), rest(results), circumstances(results))
}

/// All figures of clusters, and the facts about the machine.
pub(crate) fn replicated(results: &Results) -> String {
    format!("{}{}{}", clusters(results), rest(results), circumstances(results))
}

/// Like [`replicated`], for groups of slots, which have no other servers beside them.
pub(crate) fn groups(results: &Results) -> String {
    format!("{}{}", rest(results), circumstances(results))
}

/// Throughput as a multiple of redlatch's in the same round, and processor time: one load per line.
pub(crate) fn clusters(results: &Results) -> String {
    let servers: Vec<&str> = results.servers.iter().map(|(name, _)| name.as_str()).collect();
    let mut text = String::new();
    let mut head = vec!["throughput, us of CPU".to_owned()];
    head.extend(servers.iter().map(|name| (*name).to_owned()));
    line(&mut text, &head);
    line(&mut text, &rule(head.len()));
    for rate in &results.figures {
        let Some(clients) = rate.what.strip_suffix(", rate") else { continue };
        let cpu = results.figure(&rate.load, &format!("{clients}, CPU"));
        let cell = |name: &&str| {
            let both = rate.multiple(name, OURS).zip(cpu.and_then(|cpu| cpu.median(name)));
            both.map_or("-".to_owned(), |(times, cpu)| format!("{times:.2} x, {}", number(cpu)))
        };
        // A load that redlatch does not have is compared with nothing.
        if rate.values.contains_key(OURS) {
            let mut cells = vec![format!("{}, {clients}", rate.load)];
            cells.extend(servers.iter().map(cell));
            line(&mut text, &cells);
        }
    }
    text + "\n"
}

/// The cost of a request, one load per line, each cell plain and pipelined.
fn costs(results: &Results) -> String {
    let servers: Vec<&str> = results.servers.iter().map(|(name, _)| name.as_str()).collect();
    let is_cost = |figure: &&Figure| figure.unit == CPU_PER_REQUEST;
    let loads = results.figures.iter().filter(|figure| is_cost(figure) && figure.what == MODES[0]);
    let mut text = String::new();
    let mut line = |cells: &[String]| line(&mut text, cells);
    let mut head = vec!["us of CPU per request: plain / pipelined by 16".to_owned()];
    head.extend(servers.iter().map(|name| (*name).to_owned()));
    head.extend([format!("of `{LIMIT}`'s capacity"), format!("{VALKEY} takes")]);
    line(&head);
    line(&rule(head.len()));
    for load in loads.map(|figure| figure.load.as_str()) {
        let both = MODES.map(|mode| results.figure(load, mode));
        let pair = |of: &dyn Fn(&Figure) -> Option<String>| {
            let [plain, pipelined] = both.map(|figure| figure.and_then(of).unwrap_or_else(|| "-".to_owned()));
            format!("{plain} / {pipelined}")
        };
        let mut cells = vec![load.to_owned()];
        cells.extend(servers.iter().map(|name| pair(&|figure| figure.median(name).map(number))));
        cells.push(pair(&|figure| figure.multiple(LIMIT, OURS).map(percent)));
        cells.push(pair(&|figure| figure.multiple(VALKEY, OURS).map(|times| format!("{times:.1} x"))));
        line(&cells);
    }
    text + "\n"
}

/// The time and the cost of a hand-off, one recipe on one server per line. The first line is the standard that multiples
/// are of.
fn hand_offs(results: &Results) -> String {
    let titles: Vec<&str> = results
        .figures
        .iter()
        .filter(|figure| figure.load == HAND_OFF)
        .filter_map(|figure| figure.what.strip_suffix(", p50"))
        .collect();
    let Some(standard) = titles.first() else { return String::new() };
    let columns = [HAND_OFF, HERD].map(|load| ["p50", "p99", "CPU"].map(|what| (load, what))).concat();
    let values = |(load, what): (&str, &str), title: &str, server: &str| {
        let figure = results.figure(load, &format!("{title}, {what}"))?;
        Some((figure.median(server)?, figure.values.get(server)?))
    };
    let mut text = String::new();
    let mut head = vec!["recipe".to_owned(), "server".to_owned()];
    head.extend(columns.iter().map(|(load, what)| format!("{load}: {what}, us")));
    line(&mut text, &head);
    line(&mut text, &rule(head.len()));
    for title in &titles {
        for server in results.servers.iter().map(|(name, _)| name.as_str()) {
            if values(columns[0], title, server).is_none() {
                continue;
            }
            let mut cells = vec![(*title).to_owned(), server.to_owned()];
            cells.extend(columns.iter().map(|column| {
                let Some((median, rounds)) = values(*column, title, server) else { return "-".to_owned() };
                let by = values(*column, standard, OURS).filter(|_| (*title, server) != (*standard, OURS));
                let times = by.and_then(|(_, by)| ratio(rounds, by));
                number(median) + &times.map_or_else(String::new, |times| format!(" ({times:.1} x)"))
            }));
            line(&mut text, &cells);
        }
    }
    text + "\n"
}

/// Results other than requests and hand-offs: latencies, memory, starts.
fn rest(results: &Results) -> String {
    let servers = results.servers.iter().map(|(name, _)| name.as_str());
    // Rates are left out: a server with a core to itself is described by its cost per request.
    let is_shown = |figure: &&Figure| {
        let is_request =
            MODES.iter().any(|mode| figure.what == *mode || figure.what == format!("{mode}, rate"));
        !is_request && ![HAND_OFF, HERD].contains(&figure.load.as_str())
    };
    let mut text = String::new();
    let mut head = vec!["load".to_owned(), "figure".to_owned(), "unit".to_owned()];
    head.extend(servers.clone().map(str::to_owned));
    line(&mut text, &head);
    line(&mut text, &rule(head.len()));
    for figure in results.figures.iter().filter(is_shown) {
        let mut cells = vec![figure.load.clone(), figure.what.clone(), figure.unit.clone()];
        cells.extend(servers.clone().map(|name| figure.median(name).map_or("-".to_owned(), number)));
        line(&mut text, &cells);
    }
    text + "\n"
}

fn circumstances(results: &Results) -> String {
    let mut text = String::from("Measured on ");
    let facts: Vec<String> = results.machine.iter().map(|(name, value)| format!("{name} {value}")).collect();
    writeln!(text, "{}; {} run; medians.", facts.join(", "), results.scale)
        .expect("a String takes everything");
    let servers: Vec<String> =
        results.servers.iter().map(|(name, about)| format!("{name} ({about})")).collect();
    writeln!(text, "Servers: {}.", servers.join(", ")).expect("a String takes everything");
    for (load, revision) in &results.repeated {
        writeln!(text, "Repeated at revision {revision}: {load}.").expect("a String takes everything");
    }
    for (name, reason) in &results.missing {
        writeln!(text, "Missing: {name}: {reason}.").expect("a String takes everything");
    }
    for (load, server, reason) in &results.failed {
        writeln!(text, "Failed: {load} on {server}: {reason}.").expect("a String takes everything");
    }
    text
}

fn line(text: &mut String, cells: &[String]) {
    writeln!(text, "| {} |", cells.join(" | ")).expect("a String takes everything");
}

fn rule(columns: usize) -> Vec<String> {
    std::iter::once("---".to_owned()).chain(std::iter::repeat_n("---:".to_owned(), columns - 1)).collect()
}

/// Two or three digits that mean something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
