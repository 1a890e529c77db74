//! The metrics in the documents: the families of a server that runs, as it describes them.

use std::collections::{BTreeMap, BTreeSet};

use redlatch::Server;

pub(crate) fn table() -> String {
    let mut text = String::from("\n| metric | kind | labels | what it is |\n|---|---|---|---|\n");
    for (name, family) in families(&scrape()) {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let suffix = if family.kind == "counter" { "_total" } else { "" };
        text.push_str(&format!(
            "| `{name}{suffix}` | {} | {} | {} |\n",
            family.kind,
            labels.join(", "),
            family.help
        ));
    }
    text
}

/// What a server says of a metric family.
#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// The metrics of a server that has every family: a command was called, and locks are grouped.
fn scrape() -> String {
    let builder = Server::builder().set("lock-metrics-prefix", "lock:");
    let server = builder.start_blocking().expect("a server starts");
    let mut peer = crate::support::stream::Peer::to(server.addr());
    assert_eq!(peer.ask(b"PING\r\n"), "+PONG");
    server.metrics()
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.entry(name.to_owned()).or_default().help = help.replace('|', "\\|");
            current = name.to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            families.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            let names = labels.split("=\"").filter_map(|part| part.rsplit([',', '{']).next());
            let names = names.filter(|name| *name != "le" && name.chars().all(|c| c.is_ascii_lowercase()));
            let family = families.get_mut(&current).expect("HELP comes first");
            family.labels.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    families
}
