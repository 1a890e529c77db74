//! The audit log: who has logged in, broken a lock, or changed users, settings or statistics. docs/logging.md is the
//! reference.
//!
//! Owns    the form of a line, and how many lines were left out. Where they go is decided above: [`AuditSink`].
//! Rule    a line is taken at once, or left out and counted: nobody waits for a disk. Without a sink, a branch is all.
//! Rule    no line has a password, and an unknown user name is left out, because it may be a password by mistake.
//! Bounds  a line has at most [`LINE_BYTES_MAX`], and a text in it [`TEXT_BYTES_MAX`]. Logins and failed logins have ten
//!         lines a second each.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::log_name::push_json;

use crate::state::clients::ClientId;
use crate::state::log_limiter::LineBudget;
use crate::state::session::Session;

/// Bytes of the longest line. What does not fit is left out of its list.
pub const LINE_BYTES_MAX: usize = 8192;
/// Bytes of a key, a word or a name that a line shows; `...` follows if there are more.
pub const TEXT_BYTES_MAX: usize = 256;
/// Bytes that the lists of a line may fill. A text takes six bytes for each of its own at most.
const LIST_BYTES_MAX: usize = LINE_BYTES_MAX / 4;

/// Where the lines go.
pub trait AuditSink: Debug + Send + Sync {
    /// Takes a line without its end. False: it is left out, because too many wait. Does not block.
    fn take(&self, line: String) -> bool;

    /// Opens the file again, which may have been renamed, before the next line. Default: there is no file.
    fn reopen(&self) {}
}

/// The audit log of one server. Default: off.
#[derive(Debug, Default)]
pub struct Audit {
    sink: OnceLock<Arc<dyn AuditSink>>,
    logins: LineBudget,
    failed_logins: LineBudget,
    /// Lines that the sink has not taken, and that no line has told yet.
    left_out: AtomicU64,
}

/// Who has caused a line.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    /// The name of its user; empty: it has not logged in.
    pub user: &'a [u8],
    /// Where it is connected from.
    pub peer: &'a str,
    /// Its number; 0: an HTTP request.
    pub client: ClientId,
}

impl<'a> Author<'a> {
    /// The client of a session.
    pub fn of(session: &'a Session) -> Self {
        let user: &[u8] = if session.authenticated { session.account.name() } else { b"" };
        Self { user, peer: &session.client.address.peer, client: session.client.id }
    }
}

impl Audit {
    /// Turns it on. A second sink is ignored.
    pub fn attach(&self, sink: Arc<dyn AuditSink>) {
        let _ = self.sink.set(sink);
    }

    /// Writes that something has happened; `fields` adds what.
    pub fn note(&self, now: Now, author: Author<'_>, event: &str, fields: impl FnOnce(&mut AuditLine)) {
        if let Some(sink) = self.sink.get() {
            self.tell_left_out(now);
            let mut line = AuditLine::new(now, event);
            line.text("user", author.user);
            line.text("addr", author.peer.as_bytes());
            line.number("client", author.client);
            fields(&mut line);
            self.put(sink, line, 1);
        }
    }

    /// As [`AuditSink::reopen`].
    pub fn reopen(&self) {
        self.sink.get().iter().for_each(|sink| sink.reopen());
    }

    /// Writes that a client has logged in.
    pub fn login(&self, now: Now, author: Author<'_>) {
        if self.sink.get().is_some() && self.logins.allows(now.lock) {
            self.note(now, author, "login", |_| {});
        }
    }

    /// Writes that a login has failed: under which name, if there is such a user.
    pub fn failed_login(&self, now: Now, author: Author<'_>, name: Option<&[u8]>) {
        if self.sink.get().is_some() && self.failed_logins.allows(now.lock) {
            self.note(now, author, "login-failed", |line| match name {
                Some(name) => line.text("name", name),
                None => line.null("name"),
            });
        }
    }

    /// Writes how many lines were left out. Returns when to call it again.
    pub fn tell_left_out(&self, now: Now) -> Option<LockTime> {
        let sink = self.sink.get()?;
        for (budget, event) in [(&self.logins, "login"), (&self.failed_logins, "login-failed")] {
            if let Some(lines) = budget.take_left_out(now.lock) {
                self.put_left_out(sink, (now, event), lines, 1);
            }
        }
        let lines = self.left_out.swap(0, Relaxed);
        if lines > 0 {
            self.put_left_out(sink, (now, "any"), lines, lines);
        }
        [&self.logins, &self.failed_logins].into_iter().filter_map(LineBudget::due).min()
    }

    /// `weight`: how many lines are lost if this one is.
    fn put_left_out(&self, sink: &Arc<dyn AuditSink>, (now, of): (Now, &str), lines: u64, weight: u64) {
        let mut line = AuditLine::new(now, "left-out");
        line.text("of", of.as_bytes());
        line.number("lines", lines);
        self.put(sink, line, weight);
    }

    fn put(&self, sink: &Arc<dyn AuditSink>, line: AuditLine, weight: u64) {
        if !sink.take(line.finished()) {
            self.left_out.fetch_add(weight, Relaxed);
        }
    }
}

/// One line: a JSON object.
#[derive(Debug)]
pub struct AuditLine(String);

impl AuditLine {
    /// `time` is Unix time in milliseconds.
    fn new(now: Now, event: &str) -> Self {
        let mut line = Self("{\"time\":".to_owned());
        line.display(now.wall().as_millis());
        line.text("event", event.as_bytes());
        line
    }

    /// A field with a text. Bytes that are not UTF-8 are escaped as in a byte string of Rust.
    pub(crate) fn text(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        push_text(&mut self.0, value);
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.display(value);
    }

    pub(crate) fn null(&mut self, name: &str) {
        self.name(name);
        self.0.push_str("null");
    }

    /// A field with a list of texts: as many as there is room for, and `...` if there are more.
    pub(crate) fn list<T: AsRef<[u8]>>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        self.name(name);
        let end = self.0.len().saturating_add(LIST_BYTES_MAX);
        for (at, value) in values.into_iter().enumerate() {
            self.0.push(if at == 0 { '[' } else { ',' });
            if self.0.len() > end {
                push_text(&mut self.0, b"...");
                break;
            }
            push_text(&mut self.0, value.as_ref());
        }
        if self.0.ends_with(':') {
            self.0.push('[');
        }
        self.0.push(']');
    }

    fn name(&mut self, name: &str) {
        self.0.push(',');
        push_text(&mut self.0, name.as_bytes());
        self.0.push(':');
    }

    fn display(&mut self, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{value}");
    }

    fn finished(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Appends a text of JSON: the first [`TEXT_BYTES_MAX`] bytes.
fn push_text(out: &mut String, text: &[u8]) {
    let kept = &text[..text.len().min(TEXT_BYTES_MAX)];
    out.push('"');
    for chunk in kept.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend(['\\', character]),
                // Also what JSON allows and a terminal obeys is an escape.
                _ => push_json(out, character),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\\\x{byte:02x}");
        }
    }
    if kept.len() < text.len() {
        out.push_str("...");
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Takes lines as long as there is room.
    #[derive(Debug, Default)]
    struct Kept(Mutex<(Vec<String>, usize)>);

    impl AuditSink for Kept {
        fn take(&self, line: String) -> bool {
            let mut kept = self.0.lock();
            let has_room = kept.0.len() < kept.1;
            if has_room {
                kept.0.push(line);
            }
            has_room
        }
    }

    impl Kept {
        fn events(&self) -> Vec<String> {
            let events = |line: &String| line.split("\"event\":").nth(1).map(str::to_owned);
            std::mem::take(&mut self.0.lock().0).iter().filter_map(events).collect()
        }
    }

    fn audit(room: usize) -> (Audit, Arc<Kept>) {
        let (audit, kept) = (Audit::default(), Arc::new(Kept(Mutex::new((Vec::new(), room)))));
        audit.attach(kept.clone());
        (audit, kept)
    }

    fn at(millis: u64) -> Now {
        Now { lock: LockTime::from_millis(millis), wall_offset_ms: 1_000 }
    }

    const AUTHOR: Author<'static> = Author { user: b"ops", peer: "10.0.0.7:50", client: 7 };

    #[test]
    fn a_line_is_one_line_of_json_whatever_is_in_it() {
        let (audit, kept) = audit(9);
        audit.note(at(5), AUTHOR, "break", |line| {
            line.text("key", b"a\"\\\n\xff\xe2\x80\xae\xf0\x9f\x94\x92");
            line.list::<&[u8]>("none", []);
            line.list("two", [&b"x"[..], b"y"]);
        });
        let line = std::mem::take(&mut kept.0.lock().0).remove(0);
        let expected = concat!(
            r#"{"time":1005,"event":"break","user":"ops","addr":"10.0.0.7:50","client":7,"#,
            "\"key\":\"a\\\"\\\\\\u000a\\\\xff\\u202e\u{1f512}\",",
            r#""none":[],"two":["x","y"]}"#
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_is_bounded_whatever_is_in_it() {
        let (audit, kept) = audit(9);
        let (long, many) = ([7; 100_000], [&[7; 1_000][..]; 1_000]);
        audit.note(at(5), Author { user: &long, ..AUTHOR }, "config-set", |line| {
            line.list("settings", many);
        });
        let line = kept.0.lock().0.remove(0);
        assert!(line.len() <= LINE_BYTES_MAX && line.ends_with(r#","..."]}"#), "{}: {line}", line.len());
    }

    #[test]
    fn logins_beyond_ten_in_a_second_are_counted() {
        let (audit, kept) = audit(99);
        for _ in 0..25 {
            audit.failed_login(at(5), AUTHOR, None);
            audit.login(at(5), AUTHOR);
        }
        assert_eq!(kept.events().len(), 20);
        assert_eq!(audit.tell_left_out(at(5)), Some(LockTime::from_millis(1_005)));
        assert_eq!(audit.tell_left_out(at(1_005)), None);
        let expected =
            [r#""left-out","of":"login","lines":15}"#, r#""left-out","of":"login-failed","lines":15}"#];
        assert_eq!(kept.events(), expected);
    }

    #[test]
    fn lines_that_find_no_room_are_counted_until_there_is_some() {
        let (audit, kept) = audit(1);
        for _ in 0..4 {
            audit.note(at(5), AUTHOR, "break", |_| {});
        }
        assert_eq!(kept.events().len(), 1);
        kept.0.lock().1 = 2;
        audit.note(at(6), AUTHOR, "break", |_| {});
        let seen = kept.events();
        assert_eq!((seen[0].as_str(), seen.len()), (r#""left-out","of":"any","lines":3}"#, 2));
    }

    #[test]
    fn nothing_is_written_without_a_sink() {
        let audit = Audit::default();
        audit.note(at(5), AUTHOR, "break", |_| panic!("nobody wants the line"));
        audit.failed_login(at(5), AUTHOR, None);
        assert_eq!(audit.tell_left_out(at(9_000)), None);
    }
}
