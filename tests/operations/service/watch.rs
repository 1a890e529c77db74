//! The dashboard and the alerts: every query names a metric that the server has, with labels that the metric has, and every
//! alert is explained.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redlatch::Server;

use crate::support::wire::Link;

/// Labels that Prometheus adds, and the bound of a histogram's bucket.
const LABELS_ADDED: &[&str] = &["instance", "job", "le"];

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The names of the server's samples with their labels, after a lock of each kind was taken, waited for and released.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let server = Server::builder().start_blocking().unwrap();
    let mut link = Link::to(server.addr()).unwrap();
    for request in
        ["LOCK.ACQUIRE a me", "LOCK.ACQUIRE a you", "LOCK.ACQUIRE b me SHARED", "LOCK.RELEASE a me"]
    {
        link.ask(&request.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let mut found = BTreeMap::new();
    for line in server.metrics().lines().filter(|line| !line.starts_with('#')) {
        let name_end = line.find(['{', ' ']).expect("a sample has a value");
        let (name, rest) = line.split_at(name_end);
        let labels =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
        let names = labels.split(',').filter_map(|label| label.split_once('='));
        let labels: &mut BTreeSet<String> = found.entry(name.to_owned()).or_default();
        labels.extend(names.map(|(name, _)| name.to_owned()));
    }
    found
}

/// The alerts and their queries: each is on one line.
fn alerts() -> Vec<(String, String)> {
    let text = read("packages/deploy/prometheus-alerts.yaml");
    let value = |key: &str| {
        let lines = text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
        lines.map(|value| value.trim().to_owned()).collect::<Vec<_>>()
    };
    let (names, queries) = (value("alert:"), value("expr:"));
    assert!(
        names.len() == queries.len() && queries.iter().all(|query| query.len() > 5),
        "{names:?} {queries:?}"
    );
    names.into_iter().zip(queries).collect()
}

/// The panels' titles, and their queries with their legends.
fn panels() -> Vec<(String, String)> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("packages/deploy/grafana-dashboard.json")).unwrap();
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query =
                format!("{} {}", text(&target["expr"]), text(&target["legendFormat"]).replace("{{", "by ("));
            found.push((text(&panel["title"]), query));
        }
    }
    found
}

/// The words of a query that may be names of metrics.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
    query.split(move |char| !is_part(char)).filter(|word| word.starts_with("redlatch_"))
}

/// The labels that a query groups by, or names in its legend.
fn grouped(query: &str) -> impl Iterator<Item = &str> {
    let groups = query.split("by (").skip(1).filter_map(|rest| rest.split([')', '}']).next());
    groups.flat_map(|labels| labels.split(',').map(str::trim))
}

#[test]
fn every_query_names_metrics_and_labels_that_the_server_has() {
    let metrics = metrics();
    let (alerts, panels) = (alerts(), panels());
    assert!(alerts.len() >= 10 && panels.len() >= 20, "{} alerts, {} queries", alerts.len(), panels.len());
    for (place, query) in alerts.iter().chain(&panels) {
        let mut labels: BTreeSet<&str> = LABELS_ADDED.iter().copied().collect();
        for name in names(query) {
            let known = metrics.get(name).unwrap_or_else(|| panic!("{place}: the server has no {name}"));
            labels.extend(known.iter().map(String::as_str));
        }
        for label in grouped(query) {
            assert!(labels.contains(label), "{place}: no metric of the query has the label {label}");
        }
        assert!(names(query).next().is_some() || query.contains("up{"), "{place}: names no metric: {query}");
    }
}

#[test]
fn every_alert_is_explained_and_nothing_else_is() {
    let page = read("docs/operations.md");
    let explained: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("### Redlatch")).collect();
    let alerts = alerts();
    let names: BTreeSet<&str> =
        alerts.iter().map(|(name, _)| name.strip_prefix("Redlatch").expect("the prefix")).collect();
    assert_eq!(explained, names);
}
