//! Results as Markdown, for the terminal and for README.md.
//!
//! Rule    medians of the rounds; first the cost of requests, with redlatch's share and multiple; then the rest.

use std::fmt::Write as _;

use super::results::{CPU_PER_REQUEST, Figure, LIMIT, OURS, Results, VALKEY};

/// The two ways to send requests, as the figures of a load are called.
const MODES: [&str; 2] = ["plain", "pipelined"];

/// All tables, and the facts about the machine.
pub(crate) fn markdown(results: &Results) -> String {
    format!("{}{}{}", costs(results), rest(results), circumstances(results))
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

/// Results other than requests: latencies, memory, starts.
fn rest(results: &Results) -> String {
    let servers = results.servers.iter().map(|(name, _)| name.as_str());
    // Rates are left out: a server with a core to itself is described by its cost per request.
    let is_shown = |figure: &&Figure| {
        !MODES.iter().any(|mode| figure.what == *mode || figure.what == format!("{mode}, rate"))
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
