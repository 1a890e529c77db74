//! The tools that operators point at a server: what they send first is known, and a real redis_exporter finds no error.
//!
//! Source  the requests that redis_exporter 1.45 sends with all its collectors on, as the server has counted them; the public
//!         code of RedisInsight 2 (`api/src/modules`: database, browser, slow log, profiler). `redis-cli --stat` is in
//!         tests/clients/cli.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use redis_protocol::resp2::types::OwnedFrame;
use redlatch::Server;

use crate::support::wire::Link;

const EXPORTER: &[&str] = &[
    "CLIENT SETNAME redis_exporter", "CONFIG GET *", "INFO ALL", "LATENCY LATEST", "LATENCY HISTOGRAM",
    "SLOWLOG LEN", "SLOWLOG GET 1", "CLIENT LIST", "MODULE LIST", "SELECT 0",
    "SCAN 0 MATCH lock:* COUNT 1000", "TYPE lock:a", "STRLEN lock:a", "GET lock:a", "MEMORY USAGE lock:a",
];

const INSIGHT: &[&str] = &[
    "CLIENT SETNAME redisinsight-common-0a1b2c3d",
    "CLIENT SETINFO LIB-NAME ioredis",
    "PING",
    "INFO",
    "MODULE LIST",
    "COMMAND",
    "COMMAND INFO FT._LIST GET",
    "COMMAND DOCS",
    "COMMAND COUNT",
    "ACL WHOAMI",
    "DBSIZE",
    "CONFIG GET databases",
    "CONFIG GET slowlog*",
    "CONFIG GET notify-keyspace-events",
    "CLIENT LIST",
    "SCAN 0 MATCH * COUNT 10000",
    "TYPE lock:a",
    "TTL lock:a",
    "MEMORY USAGE lock:a SAMPLES 0",
    "STRLEN lock:a",
    "OBJECT ENCODING lock:a",
    "GET lock:a",
    "GETRANGE lock:a 0 4999",
    "SLOWLOG GET 50",
    "SLOWLOG LEN",
    "PUBSUB CHANNELS",
    "PUBSUB NUMPAT",
    "FUNCTION LIST",
    "LATENCY LATEST",
    "INFO commandstats",
];

fn server() -> Server {
    let server = Server::builder().start_blocking().unwrap();
    server.keys().set("lock:a", "me", None);
    server
}

#[test]
fn no_tool_meets_an_unknown_command() {
    let server = server();
    for (tool, requests) in [("redis_exporter", EXPORTER), ("RedisInsight", INSIGHT)] {
        let mut link = Link::to(server.addr()).unwrap();
        for request in requests {
            let reply = link.ask(&request.split(' ').collect::<Vec<_>>()).unwrap();
            assert!(!matches!(reply, OwnedFrame::Error(_)), "{tool}: {request}: {reply:?}");
        }
    }
}

/// The program: Debian's package calls it `prometheus-redis-exporter`.
fn exporter() -> String {
    std::env::var("REDLATCH_REDIS_EXPORTER").unwrap_or_else(|_| "prometheus-redis-exporter".to_owned())
}

/// The port on which a process listens. The exporter does not say which one it gets for 0.
fn port_of(process: u32) -> Option<u16> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let sockets: Vec<String> = links.map(|link| link.display().to_string()).collect();
    let connections = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).ok()?;
    connections.lines().find_map(|line| {
        let [_, address, _, state, _, _, _, _, _, inode, ..] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let is_listening = state == "0A" && sockets.contains(&format!("socket:[{inode}]"));
        is_listening.then(|| u16::from_str_radix(address.split_once(':')?.1, 16).ok())?
    })
}

#[test]
#[ignore = "needs redis_exporter"]
fn redis_exporter_scrapes_without_an_error() {
    let server = server();
    let mut process = Command::new(exporter())
        .args(["-redis.addr", &server.url(), "-web.listen-address", "127.0.0.1:0"])
        .args([
            "-check-keys", "lock:*", "-count-keys", "lock:*", "-export-client-list",
            "-include-system-metrics",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .expect("redis_exporter is installed");
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("Providing metrics") {
        assert!(log.read_line(&mut said).unwrap() > 0, "it ended: {said}");
    }
    // It says so before it listens.
    let port = loop {
        match port_of(process.id()) {
            Some(port) => break port,
            None => assert!(process.try_wait().unwrap().is_none(), "it ended: {said}"),
        }
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    for line in [
        "redis_up 1",
        "redis_exporter_last_scrape_error{err=\"\"} 0",
        "redis_connected_clients 1",
        "redis_db_keys{db=\"db0\"} 1",
        "redis_keys_count{db=\"db0\",key=\"lock:*\"} 1",
        "redis_key_size{db=\"db0\",key=\"lock:a\"} 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in:\n{metrics}");
    }
    // The exporter tries PFCOUNT on every string, which Redis refuses as well.
    let mut link = Link::to(server.addr()).unwrap();
    let OwnedFrame::BulkString(errors) = link.ask(&["INFO", "errorstats"]).unwrap() else { panic!("a text") };
    assert_eq!(String::from_utf8_lossy(&errors), "# Errorstats\r\nerrorstat_ERR:count=1\r\n");
}
