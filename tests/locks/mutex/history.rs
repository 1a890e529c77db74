//! The recorded calls of lock clients: requests, times and replies. `checker.rs` checks them.
//!
//! Owns    the record of a call, and the line format in which processes of any language write it.
//! Time    nanoseconds of the machine's monotonic clock, which all processes share. The server carried out a call between
//!         its two recorded times, or never.
//! Rule    the first line is written before the request is sent, so a killed client leaves no call unrecorded.
//!
//! ```text
//! sent ID NANOSECONDS LOCK acquire|extend TOKEN MILLISECONDS
//! sent ID NANOSECONDS LOCK session|release|hangup|look|token TOKEN
//! got ID NANOSECONDS yes|no|nobody
//! got ID NANOSECONDS yes FENCE
//! got ID NANOSECONDS yes FENCE WAITED-MILLISECONDS
//! got ID NANOSECONDS holder TOKEN
//! ```

use std::collections::{BTreeMap, BTreeSet};

/// A request; a lease is in milliseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ask {
    Acquire(u64),
    Extend(u64),
    /// Closes the connection, by which its session locks end.
    Hangup,
    /// Reads the holder of the lock.
    Look,
    Release,
    /// Takes the lock until it is released or its connection ends.
    Session,
    /// Reads the fencing number of its own lease.
    Token,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// The token of the current holder; as the reply to an acquisition, a refusal.
    Holder(String),
    No,
    Nobody,
    Yes,
    /// Granted, with a fencing number that must rise from grant to grant.
    YesWithFence(u64),
    /// Granted after a wait in the queue of the lock.
    YesAfter {
        fence: u64,
        waited_ms: u64,
    },
}

/// One call of one client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Call {
    pub(crate) lock: String,
    /// The client's token, by which it holds, extends or releases the lock.
    pub(crate) token: String,
    pub(crate) ask: Ask,
    pub(crate) sent_ns: u64,
    /// `None` if the connection or the client ended first: then it is unknown whether and when the call was carried out.
    pub(crate) answer: Option<(u64, Answer)>,
}

impl Call {
    /// The reply and its arrival time.
    pub(crate) fn heard(&self) -> Option<(u64, &Answer)> {
        self.answer.as_ref().map(|(heard_ns, answer)| (*heard_ns, answer))
    }
}

/// The line written before the request is sent.
pub(crate) fn sent(id: &str, now_ns: u64, lock: &str, ask: Ask, token: &str) -> String {
    let (verb, lease_ms) = match ask {
        Ask::Acquire(lease_ms) => ("acquire", Some(lease_ms)),
        Ask::Extend(lease_ms) => ("extend", Some(lease_ms)),
        Ask::Hangup => ("hangup", None),
        Ask::Look => ("look", None),
        Ask::Release => ("release", None),
        Ask::Session => ("session", None),
        Ask::Token => ("token", None),
    };
    let lease = lease_ms.map_or(String::new(), |lease_ms| format!(" {lease_ms}"));
    format!("sent {id} {now_ns} {lock} {verb} {token}{lease}\n")
}

/// The line written after the reply has arrived.
pub(crate) fn got(id: &str, now_ns: u64, answer: &Answer) -> String {
    let answer = match answer {
        Answer::Holder(token) => format!("holder {token}"),
        Answer::No => "no".to_owned(),
        Answer::Nobody => "nobody".to_owned(),
        Answer::Yes => "yes".to_owned(),
        Answer::YesWithFence(fence) => format!("yes {fence}"),
        Answer::YesAfter { fence, waited_ms } => format!("yes {fence} {waited_ms}"),
    };
    format!("got {id} {now_ns} {answer}\n")
}

/// Counts the grants of a history while it is written.
#[derive(Default)]
pub(crate) struct Grants {
    pub(crate) count: usize,
    /// Bytes that have been read.
    pub(crate) offset: usize,
    asked: BTreeSet<String>,
}

impl Grants {
    /// Reads what follows the offset, up to the end of its last whole line.
    pub(crate) fn read_on(&mut self, text: &str) {
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.offset += whole.len();
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["sent", id, _, _, "acquire" | "session", ..] => {
                    self.asked.insert((*id).to_owned());
                }
                ["got", id, _, answer, ..] if self.asked.remove(*id) && *answer == "yes" => self.count += 1,
                _ => {}
            }
        }
    }
}

/// Parses the lines of one process into calls, in the order of sending.
///
/// An unterminated last line is ignored: the process was killed while it wrote.
///
/// # Errors
/// The first malformed line.
pub(crate) fn read(text: &str) -> Result<Vec<Call>, String> {
    let mut calls: Vec<Call> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let wrong = || format!("no line of a history: {line:?}");
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["sent", id, sent_ns, lock, verb, token, lease @ ..] => {
                let ask = ask(verb, lease).ok_or_else(wrong)?;
                let sent_ns = sent_ns.parse().map_err(|_| wrong())?;
                let (lock, token) = ((*lock).to_owned(), (*token).to_owned());
                if places.insert(id, calls.len()).is_some() {
                    return Err(wrong());
                }
                calls.push(Call { lock, token, ask, sent_ns, answer: None });
            }
            ["got", id, heard_ns, answer @ ..] => {
                let call = places.get(id).and_then(|place| calls.get_mut(*place)).ok_or_else(wrong)?;
                let heard_ns = heard_ns.parse().map_err(|_| wrong())?;
                let answer = heard(answer).ok_or_else(wrong)?;
                if heard_ns < call.sent_ns || call.answer.replace((heard_ns, answer)).is_some() {
                    return Err(wrong());
                }
            }
            _ => return Err(wrong()),
        }
    }
    Ok(calls)
}

fn ask(verb: &str, lease: &[&str]) -> Option<Ask> {
    match (verb, lease) {
        ("acquire", [lease_ms]) => Some(Ask::Acquire(lease_ms.parse().ok()?)),
        ("extend", [lease_ms]) => Some(Ask::Extend(lease_ms.parse().ok()?)),
        ("hangup", []) => Some(Ask::Hangup),
        ("look", []) => Some(Ask::Look),
        ("release", []) => Some(Ask::Release),
        ("session", []) => Some(Ask::Session),
        ("token", []) => Some(Ask::Token),
        _ => None,
    }
}

fn heard(words: &[&str]) -> Option<Answer> {
    match words {
        ["holder", token] => Some(Answer::Holder((*token).to_owned())),
        ["no"] => Some(Answer::No),
        ["nobody"] => Some(Answer::Nobody),
        ["yes"] => Some(Answer::Yes),
        ["yes", fence] => Some(Answer::YesWithFence(fence.parse().ok()?)),
        ["yes", fence, waited_ms] => {
            Some(Answer::YesAfter { fence: fence.parse().ok()?, waited_ms: waited_ms.parse().ok()? })
        }
        _ => None,
    }
}

#[test]
fn a_written_history_reads_back() {
    let lines = [
        sent("a-1", 10, "stock", Ask::Acquire(30), "mine"),
        sent("a-2", 11, "stock", Ask::Look, "-"),
        got("a-2", 12, &Answer::Holder("mine".to_owned())),
        got("a-1", 13, &Answer::YesWithFence(7)),
        sent("a-3", 14, "stock", Ask::Release, "mine"),
        sent("a-4", 15, "stock", Ask::Session, "next"),
        got("a-4", 16, &Answer::YesAfter { fence: 8, waited_ms: 5 }),
        sent("a-5", 17, "stock", Ask::Token, "next"),
        sent("a-6", 18, "stock", Ask::Hangup, "next"),
    ];
    let calls = read(&lines.concat()).expect("its own lines");
    let call = |token: &str, ask, sent_ns, answer| Call {
        lock: "stock".to_owned(),
        token: token.to_owned(),
        ask,
        sent_ns,
        answer,
    };
    let holder = Answer::Holder("mine".to_owned());
    assert_eq!(
        calls,
        [
            call("mine", Ask::Acquire(30), 10, Some((13, Answer::YesWithFence(7)))),
            call("-", Ask::Look, 11, Some((12, holder))),
            call("mine", Ask::Release, 14, None),
            call("next", Ask::Session, 15, Some((16, Answer::YesAfter { fence: 8, waited_ms: 5 }))),
            call("next", Ask::Token, 17, None),
            call("next", Ask::Hangup, 18, None),
        ]
    );
}

#[test]
fn grants_are_counted_once_and_releases_are_none() {
    let mut grants = Grants::default();
    let lines = "sent a 1 stock acquire x 5\ngot a 2 yes\nsent b 3 stock release x\ngot b 4 yes\n\
                 sent c 5 stock acquire y 5\ngot c 6 no\nsent d 7 stock session z\ngot d 8 yes 4 0\nsent e 9 st";
    let (first, _) = lines.split_at(40);
    grants.read_on(first);
    grants.read_on(&lines[grants.offset..]);
    assert_eq!((grants.count, &lines[grants.offset..]), (2, "sent e 9 st"));
}

#[test]
fn a_line_that_was_cut_off_is_left_out_and_nonsense_is_not() {
    assert_eq!(read("sent a 1 stock loo"), Ok(Vec::new()));
    for wrong in [
        "sent a 1 stock loo -\n",
        "sent a x stock look -\n",
        "sent a 1 stock look - 5\n",
        "got a 2 yes\n",
        "sent a 5 stock look -\ngot a 4 nobody\n",
        "sent a 5 stock look -\nsent a 6 stock look -\n",
    ] {
        assert!(read(wrong).is_err(), "{wrong:?}");
    }
}
