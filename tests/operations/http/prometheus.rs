//! `/metrics` as the parser of Prometheus' own client library reads it.
//!
//! Needs a Python interpreter with the package `prometheus_client`.

use std::io::Write;
use std::process::{Command, Stdio};

use redlatch::Server;

use crate::support::stream::Peer;

/// Reads the text with the parser, which checks names, kinds, suffixes, escapes and the buckets of histograms. Prints each
/// family with its kind, and each label value.
const PROGRAM: &str = r#"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation.endswith("."), family.name
    print(family.name, family.type)
    for sample in family.samples:
        for name, value in sample.labels.items():
            print("label", name, value)
"#;

#[test]
#[ignore = "needs REDLATCH_PROMETHEUS_PYTHON, a Python with prometheus_client"]
fn the_parser_of_prometheus_reads_every_metric() {
    let python = std::env::var("REDLATCH_PROMETHEUS_PYTHON").expect("REDLATCH_PROMETHEUS_PYTHON");
    let server = Server::builder().set("lock-metrics-prefix", "we\"ird\\: lock:").start_blocking().unwrap();
    let mut peer = Peer::to(server.addr());
    for request in
        ["SET lock:a me NX PX 9000", "SETNX lock:a you", "DEL lock:a", "LOCK.RELEASE lock:a me", "GET"]
    {
        peer.ask(format!("{request}\r\n").as_bytes());
    }
    let mut parser = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter starts");
    let text = server.metrics();
    parser.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = parser.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    let read = String::from_utf8(output.stdout).unwrap();
    for (name, kind) in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
        assert!(read.contains(&format!("{name} {kind}\n")), "{name} is not read");
    }
    for label in ["kind exclusive", "prefix we\"ird\\:", "command setnx", "outcome refused"] {
        assert!(read.contains(&format!("label {label}\n")), "{label}: {read}");
    }
}
