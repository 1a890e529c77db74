//! Plays a transcript to a target and reports every difference.
//!
//! Knows    which requests go out in one write: those of one client that stand together.

use std::collections::HashMap;

use super::pattern::{Pattern, Terms};
use super::reply::Reply;
use super::script::{Action, Step, Transcript, Unit, strings};
use super::target::{Heard, Link, Target, Wait};
use super::words::{quote, request, words};

/// The replies to reply lines that were a lone `?`, by line number.
pub(crate) type Seen = HashMap<usize, Reply>;

/// Plays it over `protocol`; every difference as `file:line: expected, got`.
pub(crate) fn play(transcript: &Transcript, target: &mut dyn Target, protocol: u8) -> (Vec<String>, Seen) {
    let mut run = Run {
        transcript,
        target,
        protocol,
        clients: HashMap::new(),
        current: String::new(),
        unsent: Vec::new(),
        names: HashMap::new(),
        faults: Vec::new(),
        seen: Seen::new(),
    };
    for step in &transcript.steps {
        if run.applies(step) && !run.step(step) {
            break;
        }
    }
    run.flush();
    run.nothing_is_left();
    (run.faults, run.seen)
}

struct Client {
    link: Link,
    protocol: u8,
    /// Received and not yet read as a reply.
    inbox: Vec<u8>,
}

struct Run<'a> {
    transcript: &'a Transcript,
    target: &'a mut dyn Target,
    protocol: u8,
    clients: HashMap<String, Client>,
    /// The client whose replies the reply lines read.
    current: String,
    unsent: Vec<u8>,
    names: HashMap<String, String>,
    faults: Vec<String>,
    seen: Seen,
}

impl Run<'_> {
    fn applies(&self, step: &Step) -> bool {
        let protocol = self.clients.get(&self.current).map_or(self.protocol, |client| client.protocol);
        step.marks.iter().all(|mark| match mark.as_str() {
            "resp2" => protocol == 2,
            "resp3" => protocol == 3,
            "real" => self.target.name() != "redlatch",
            "manual" => self.target.clock_is_manual(),
            "running" => !self.target.clock_is_manual(),
            "x86_64" | "aarch64" => mark == std::env::consts::ARCH,
            name => name == self.target.name(),
        })
    }

    /// Does one step; false where the rest makes no sense any more.
    fn step(&mut self, step: &Step) -> bool {
        if !matches!(step.action, Action::Request { .. } | Action::Raw { .. }) {
            self.flush();
        }
        match &step.action {
            Action::Request { client, text } => {
                let Some(words) = self.with_names(step, text, words) else { return false };
                self.turn(client);
                self.unsent.extend(request(&words));
                true
            }
            Action::Raw { client, text } => {
                let Some(bytes) = self.with_names(step, text, strings) else { return false };
                self.turn(client);
                self.unsent.extend_from_slice(&bytes);
                true
            }
            Action::Turn { client } => {
                self.turn(client);
                true
            }
            Action::Speaks { client, protocol } => {
                self.turn(client);
                self.client().protocol = *protocol;
                true
            }
            Action::Reply { text } => self.reply(step, text),
            Action::Bytes { text } => self.bytes(step, text),
            Action::Closed => self.closed(step),
            Action::Silent => self.silent(step),
            Action::Advance(by) => {
                self.target.advance(*by);
                true
            }
            Action::Let { name, plus, unit } => {
                let per = if *unit == Unit::Seconds { 1_000 } else { 1 };
                let value = self.target.unix_ms() / per + plus;
                self.names.insert(name.clone(), value.to_string());
                true
            }
        }
    }

    fn reply(&mut self, step: &Step, text: &str) -> bool {
        let expected = if text == "?" {
            Some(Pattern::Any)
        } else {
            match self.with_names(step, text, Pattern::parse) {
                Some(pattern) => pattern,
                None => return false,
            }
        };
        let Some(expected) = expected else { return false };
        let got = match self.next_reply() {
            Ok(got) => got,
            Err(why) => {
                self.fault(step, text, &why);
                return false;
            }
        };
        if text == "?" {
            self.seen.insert(step.line, got);
            return true;
        }
        let protocol = self.client().protocol;
        let clock_is_manual = self.target.clock_is_manual();
        let mut terms = Terms { protocol, clock_is_manual, names: &mut self.names };
        if !expected.fits(&got, &mut terms) {
            self.fault(step, text, &got.spell_line());
        }
        true
    }

    /// Exactly these bytes.
    fn bytes(&mut self, step: &Step, text: &str) -> bool {
        let Some(expected) = self.with_names(step, text, strings) else { return false };
        while self.client().inbox.len() < expected.len() && self.receive(Wait::UntilReply) == Heard::Bytes {}
        let inbox = &mut self.client().inbox;
        let got: Vec<u8> = inbox.drain(..expected.len().min(inbox.len())).collect();
        if got != expected {
            self.fault(step, text, &quote(&got));
        }
        got == expected
    }

    fn closed(&mut self, step: &Step) -> bool {
        let mut heard = Heard::Bytes;
        while heard == Heard::Bytes {
            heard = self.receive(Wait::UntilReply);
        }
        let left = std::mem::take(&mut self.client().inbox);
        if heard != Heard::Closed || !left.is_empty() {
            self.fault(step, "closed", &format!("{heard:?} after {}", quote(&left)));
        }
        heard == Heard::Closed
    }

    fn silent(&mut self, step: &Step) -> bool {
        let heard = self.receive(Wait::Briefly);
        let inbox = self.client().inbox.clone();
        if heard != Heard::Silence || !inbox.is_empty() {
            self.fault(step, "silent", &format!("{heard:?} {}", quote(&inbox)));
        }
        true
    }

    /// A reply that no line reads is a fault.
    fn nothing_is_left(&mut self) {
        for (name, client) in &mut self.clients {
            self.target.receive(client.link, Wait::Briefly, &mut client.inbox);
            if !client.inbox.is_empty() && self.faults.is_empty() {
                let path = self.transcript.path.display();
                self.faults.push(format!("{path}: {name} was never read: {}", quote(&client.inbox)));
            }
        }
    }

    fn turn(&mut self, name: &str) {
        if self.current != name {
            self.flush();
            name.clone_into(&mut self.current);
        }
        if !self.clients.contains_key(name) {
            let link = self.target.connect_as(name);
            self.clients.insert(name.to_owned(), Client { link, protocol: 2, inbox: Vec::new() });
            if self.protocol == 3 && self.transcript.over_both {
                self.target.send(link, b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
                match self.next_reply() {
                    Ok(Reply::Map(_)) => self.client().protocol = 3,
                    hello => {
                        let path = self.transcript.path.display();
                        self.faults.push(format!("{path}: HELLO 3 gave {hello:?}"));
                    }
                }
            }
        }
    }

    fn next_reply(&mut self) -> Result<Reply, String> {
        loop {
            let inbox = &mut self.client().inbox;
            if let Some((reply, taken)) = Reply::read(inbox)? {
                inbox.drain(..taken);
                return Ok(reply);
            }
            match self.receive(Wait::UntilReply) {
                Heard::Bytes => {}
                Heard::Closed => return Err("closed".to_owned()),
                Heard::Silence => return Err(format!("silence after {}", quote(&self.client().inbox))),
            }
        }
    }

    fn receive(&mut self, wait: Wait) -> Heard {
        let client = self.clients.get_mut(&self.current).expect("a client has the turn before it hears");
        self.target.receive(client.link, wait, &mut client.inbox)
    }

    fn client(&mut self) -> &mut Client {
        self.clients.get_mut(&self.current).expect("a client has the turn before it replies")
    }

    fn flush(&mut self) {
        if !self.unsent.is_empty() {
            let link = self.client().link;
            self.target.send(link, &std::mem::take(&mut self.unsent));
        }
    }

    /// The text read with the values of the names in it.
    fn with_names<T>(
        &mut self,
        step: &Step,
        text: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let mut filled = text.to_owned();
        for (name, value) in &self.names {
            filled = filled.replace(&format!("${{{name}}}"), value);
        }
        match read(&filled) {
            Ok(read) => Some(read),
            Err(why) => {
                self.fault(step, text, &why);
                None
            }
        }
    }

    fn fault(&mut self, step: &Step, expected: &str, got: &str) {
        let path = self.transcript.path.display();
        self.faults.push(format!("{path}:{}: expected {expected}\n    got      {got}", step.line + 1));
    }
}

#[cfg(test)]
mod playing {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    /// Sends its reply at the first request, then closes if `closes` is set.
    struct Parrot {
        says: &'static [u8],
        closes: bool,
    }

    impl Target for Parrot {
        fn name(&self) -> &'static str {
            "redis"
        }

        fn clock_is_manual(&self) -> bool {
            true
        }

        fn unix_ms(&self) -> i64 {
            0
        }

        fn connect(&mut self) -> Link {
            0
        }

        fn send(&mut self, _: Link, _: &[u8]) {}

        fn receive(&mut self, _: Link, _: Wait, into: &mut Vec<u8>) -> Heard {
            if !self.says.is_empty() {
                into.extend_from_slice(std::mem::take(&mut self.says));
                return Heard::Bytes;
            }
            if self.closes { Heard::Closed } else { Heard::Silence }
        }

        fn advance(&mut self, _: Duration) {}
    }

    fn faults(body: &str, says: &'static [u8], closes: bool) -> Vec<String> {
        let text = format!("covers: x\nneeds: redis\n\n{body}\n");
        let transcript = Transcript::parse(Path::new("t"), &text).expect("readable");
        play(&transcript, &mut Parrot { says, closes }, 2).0
    }

    #[test]
    fn the_expected_reply_passes() {
        assert!(faults("a> PING\n   +PONG", b"+PONG\r\n", false).is_empty());
        assert!(faults("a> PING\n   +PONG\n   closed", b"+PONG\r\n", true).is_empty());
        assert!(faults("a> PING\n   silent", b"", false).is_empty());
        assert!(faults("a> PING\n   raw \"+PONG\\r\\n\"", b"+PONG\r\n", false).is_empty());
        assert!(faults("a> X\n   <int as n>\n   :${n}", b":7\r\n:7\r\n", false).is_empty());
    }

    #[test]
    fn anything_else_is_a_fault_with_its_line() {
        for (body, says, closes) in [
            ("a> PING\n   +PONG", &b"+PANG\r\n"[..], false),
            ("a> PING\n   +PONG", b"", false),
            ("a> PING\n   +PONG", b"", true),
            ("a> PING\n   +PONG", b"+PO", false),
            ("a> PING\n   closed", b"", false),
            ("a> PING\n   closed", b"+PONG\r\n", true),
            ("a> PING\n   silent", b"+PONG\r\n", false),
            ("a> PING\n   raw \"+PONG\\r\\n\"", b"$4\r\nPONG\r\n", false),
        ] {
            let faults = faults(body, says, closes);
            assert!(faults[0].starts_with("t:5: "), "{body:?} gave {faults:?}");
        }
    }

    #[test]
    fn a_reply_that_no_line_reads_is_a_fault() {
        assert!(faults("a> PING", b"+PONG\r\n", false)[0].contains("never read"));
    }

    #[test]
    fn lines_with_marks_of_others_are_skipped() {
        let body = "a> PING\n   @resp3 +NO\n   @valkey +NO\n   @running +NO\n   @resp2 @real @manual +PONG";
        assert!(faults(body, b"+PONG\r\n", false).is_empty());
    }
}
