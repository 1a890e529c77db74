//! The same attacks on redlatch, Redis and Valkey, side by side: what each server says, whether it goes on, what it costs.
//!
//! Nothing is asserted here: the other modules assert what redlatch promises. Printed on request, beside the servers that `REDLATCH_REDIS_SERVER` and
//! `REDLATCH_VALKEY_SERVER` name.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::server::Server;

/// One attack: what it is called, what is sent, from how many connections, whether a password is set.
struct Attack {
    name: &'static str,
    bytes: Vec<u8>,
    connections: usize,
    has_password: bool,
}

/// A server in a process of its own.
struct Target(Server);

impl Target {
    fn start(program: &Path, has_password: bool) -> Self {
        let password = ["--requirepass", "secret"].map(str::to_owned);
        let more = if has_password { &password[..] } else { &[] };
        Self(Server::start_program(program, &std::env::temp_dir(), more).expect("the server starts"))
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.0.port()).into()
    }

    fn resident_mib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<usize>().map_or(0, |kib| kib / 1024)
    }

    /// What a well-behaved client hears, and how long it waits for it.
    fn pulse(&self) -> String {
        let began = Instant::now();
        let answer = said(self.address(), b"AUTH secret\r\nPING\r\n", Duration::from_secs(30));
        let waited = began.elapsed().as_millis();
        if answer.contains("PONG") { format!("goes on after {waited} ms") } else { "is gone".to_owned() }
    }

    /// One cell of the table.
    fn suffer(&self, attack: &Attack) -> String {
        let before = self.resident_mib();
        let crowd: Vec<TcpStream> = (1..attack.connections)
            .filter_map(|_| {
                let mut stream = TcpStream::connect(self.address()).ok()?;
                stream.write_all(&attack.bytes).ok()?;
                Some(stream)
            })
            .collect();
        let answer = said(self.address(), &attack.bytes, Duration::from_millis(500));
        let pulse = self.pulse();
        let grown = self.resident_mib().saturating_sub(before);
        drop(crowd);
        let answer = answer.lines().next().unwrap_or_default().chars().take(44).collect::<String>();
        format!("`{answer}` {pulse}, +{grown} MiB")
    }
}

/// What a server says to these bytes until it closes or is silent for so long.
fn said(address: SocketAddr, bytes: &[u8], patience: Duration) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return "(refused)".to_owned() };
    let _ = stream.set_read_timeout(Some(patience));
    let _ = stream.set_write_timeout(Some(patience));
    let _ = stream.write_all(bytes);
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => heard.extend_from_slice(&piece[..count]),
        }
        if heard.len() > 4096 || heard.ends_with(b"+PONG\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&heard).into_owned()
}

fn eval(script: &str) -> Vec<u8> {
    format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).into_bytes()
}

fn attacks() -> Vec<Attack> {
    let open = |name, bytes: &[u8], connections| {
        let bytes = bytes.to_vec();
        Attack { name, bytes, connections, has_password: false }
    };
    let closed = |name, bytes, connections| Attack { has_password: true, ..open(name, bytes, connections) };
    let claim = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nabc";
    vec![
        open("a type byte that cannot be", b"*1\r\n:1\r\n", 1),
        open("a line without end", &[b'1'; 70_000], 1),
        open("500 MB claimed, 200 times", claim, 200),
        closed("11 arguments before AUTH", b"*11\r\n", 1),
        closed("16 KiB and a byte before AUTH", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", 1),
        closed("a failed AUTH in a pipeline", b"PING\r\nAUTH wrong\r\nPING\r\n", 1),
        closed("an unknown command before AUTH", b"NOSUCH\r\n", 1),
        open("a web page's request", b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        open("a line break in an error", &eval("return redis.error_reply('a\\r\\n+b')"), 1),
        open("error({})", &eval("error({})"), 1),
        open("256 MB in one call of Lua", &eval("return #string.rep('x', 2^28)"), 1),
        open(
            "an exponential pattern",
            &eval("return string.find(('a'):rep(28), ('a?'):rep(28)..('a'):rep(28))"),
            1,
        ),
    ]
}

#[test]
#[ignore = "prints a table: run it alone with --nocapture"]
fn a_table_of_attacks_is_printed_side_by_side() {
    let named = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut programs = vec![("redlatch", PathBuf::from(env!("CARGO_BIN_EXE_redlatch")))];
    programs.extend(named("REDLATCH_REDIS_SERVER").map(|path| ("Redis", path)));
    programs.extend(named("REDLATCH_VALKEY_SERVER").map(|path| ("Valkey", path)));
    let heads: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    println!("| attack | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for attack in attacks() {
        let cells =
            programs.iter().map(|(_, program)| Target::start(program, attack.has_password).suffer(&attack));
        println!("| {} | {} |", attack.name, cells.collect::<Vec<_>>().join(" | "));
    }
}
