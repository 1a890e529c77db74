//! What is counted: requests on an engine without a socket, each case between two marks.
//!
//! Rule    each round leaves the server as it found it.

use std::error::Error;
use std::hint::black_box;
use std::iter::from_fn;

use super::support::bare::{Bare, EXTEND, RELEASE, load, request};

/// Rounds that are counted.
pub(crate) const COUNTED: u32 = 1_000;
/// Locks held during the count.
const LOCKS: u32 = 10_000;
/// Rounds before the count begins.
const WARM_UP: u32 = 100;
const TOKEN: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

/// The requests, and the prefix of each reply.
type Round = Vec<(Vec<u8>, &'static str)>;

/// Rounds of one kind, which are repeated.
struct Case {
    name: String,
    rounds: Vec<Round>,
}

/// The names of all cases, in the order in which they are carried out.
pub(crate) fn names() -> Vec<String> {
    let mut bare = Bare::new();
    let cases = cases(&mut bare).into_iter().chain(journal_cases(&mut bare));
    cases.map(|case| case.name).collect()
}

/// Carries out every case, each between two marks.
pub(crate) fn run_all() -> Result<(), Box<dyn Error>> {
    let (mut bare, mut with_journal) = (filled(Bare::new()), filled(Bare::with_journal()));
    cases(&mut bare).iter().try_for_each(|case| run(case, &mut bare))?;
    journal_cases(&mut with_journal).iter().try_for_each(|case| run(case, &mut with_journal))
}

/// Callgrind finds this function by name: before each call it writes and resets its counts.
#[inline(never)]
fn guard_mark() {
    black_box(());
}

/// Cases on one lock, whose memory is in the cache, and on another lock in each round.
fn cases(bare: &mut Bare) -> Vec<Case> {
    let loaded = [RELEASE, EXTEND].map(|text| load(bare, text));
    let [release, extend] = [&loaded[0][..], &loaded[1][..]];
    let one = |name: &str, words: &[&str], answer| case(name, vec![(request(words), answer)]);
    let (take, free) = (take("lock:new"), |words: &[&str]| (request(words), ":1\r\n"));
    let mut cases = vec![
        one("PING", &["PING"], "+PONG\r\n"),
        one("GET", &["GET", "lock:stock"], "$36\r\n3b241101-e2bb-4255-8caf-4136c566a962\r\n"),
        one("EXISTS", &["EXISTS", "lock:stock"], ":1\r\n"),
        one("PTTL", &["PTTL", "lock:stock"], ":30000\r\n"),
        one("PEXPIRE", &["PEXPIRE", "lock:stock", "30000"], ":1\r\n"),
        one("INCR", &["INCR", "fence"], ":"),
        one("SET NX PX refused", &["SET", "lock:stock", "me", "NX", "PX", "30000"], "$-1\r\n"),
        case("SET NX PX granted, DEL", vec![take.clone(), free(&["DEL", "lock:new"])]),
        case(
            "SET NX PX granted, release by EVALSHA",
            vec![take, free(&["EVALSHA", release, "1", "lock:new", TOKEN])],
        ),
        one("extend by EVALSHA", &["EVALSHA", extend, "1", "lock:stock", TOKEN, "30000"], ":1\r\n"),
        one("extend by EVAL", &["EVAL", EXTEND, "1", "lock:stock", TOKEN, "30000"], ":1\r\n"),
        case(
            "LOCK.ACQUIRE, LOCK.RELEASE",
            vec![
                (request(&["LOCK.ACQUIRE", "lock:new", TOKEN]), "*6\r\n"),
                free(&["LOCK.RELEASE", "lock:new", TOKEN]),
            ],
        ),
        case(
            "two hand-overs of LOCK.ACQUIRE WAIT",
            vec![
                (request(&["LOCK.ACQUIRE", "lock:stock", "next", "WAIT", "9000"]), ""),
                (request(&["LOCK.RELEASE", "lock:stock", TOKEN]), ":1\r\n*6\r\n"),
                (request(&["LOCK.ACQUIRE", "lock:stock", TOKEN, "WAIT", "9000"]), ""),
                (request(&["LOCK.RELEASE", "lock:stock", "next"]), ":1\r\n*6\r\n"),
            ],
        ),
        one("release by EVALSHA refused", &["EVALSHA", release, "1", "lock:stock", "me"], ":0\r\n"),
    ];
    cases.extend(cases_of_many(release, extend));
    cases
}

/// Cases whose every round is about another lock: what they touch is not in the first cache.
fn cases_of_many(release: &str, extend: &str) -> [Case; 4] {
    // A stride that shares no factor with the number of locks, so that neighbours in time are none in memory.
    let names = || (0..COUNTED).map(|n| name(n * 7_919 % LOCKS));
    let each = |what: &str, round: &dyn Fn(String) -> Round| Case {
        name: format!("{what}, another lock each time"),
        rounds: names().map(round).collect(),
    };
    let one = |words: &[&str], answer| vec![(request(words), answer)];
    [
        each("SET NX PX refused", &|lock| one(&["SET", &lock, "me", "NX", "PX", "30000"], "$-1\r\n")),
        each("release by EVALSHA refused", &|lock| one(&["EVALSHA", release, "1", &lock, "me"], ":0\r\n")),
        each("extend by EVALSHA", &|lock| one(&["EVALSHA", extend, "1", &lock, TOKEN, "30000"], ":1\r\n")),
        each("release by EVALSHA, SET NX PX granted", &|lock| {
            vec![(request(&["EVALSHA", release, "1", &lock, TOKEN]), ":1\r\n"), take(&lock)]
        }),
    ]
}

/// Some of them on a server with a journal, which is written after each request. What is refused writes nothing.
fn journal_cases(bare: &mut Bare) -> Vec<Case> {
    let names = [
        "SET NX PX refused", "SET NX PX granted, DEL", "SET NX PX granted, release by EVALSHA",
        "extend by EVALSHA", "LOCK.ACQUIRE, LOCK.RELEASE",
    ];
    let chosen = cases(bare).into_iter().filter(|case| names.contains(&&case.name[..]));
    chosen.map(|case| Case { name: format!("{}, journal", case.name), rounds: case.rounds }).collect()
}

fn case(name: &str, round: Round) -> Case {
    Case { name: name.to_owned(), rounds: vec![round] }
}

fn take(lock: &str) -> (Vec<u8>, &'static str) {
    (request(&["SET", lock, TOKEN, "NX", "PX", "30000"]), "+OK\r\n")
}

fn name(number: u32) -> String {
    format!("lock:{number:012}")
}

/// Fills a server, on which `lock:stock` is then held by [`TOKEN`].
fn filled(mut bare: Bare) -> Bare {
    for number in 0..LOCKS {
        bare.send(&take(&name(number)).0);
    }
    bare.send(&take("lock:stock").0);
    // The counter gains no digit during the count.
    bare.send(&request(&["SET", "fence", "100000"]));
    bare
}

fn run(case: &Case, bare: &mut Bare) -> Result<(), Box<dyn Error>> {
    let mut rounds = case.rounds.iter().cycle();
    let mut next = from_fn(|| rounds.next());
    for (bytes, answer) in next.by_ref().take(WARM_UP as usize).flatten() {
        let got = String::from_utf8_lossy(bare.send(bytes)).into_owned();
        if !got.starts_with(answer) {
            return Err(format!("{} answers {got}", case.name).into());
        }
    }
    guard_mark();
    for (bytes, _) in next.take(COUNTED as usize).flatten() {
        black_box(bare.send(black_box(bytes)));
    }
    guard_mark();
    Ok(())
}
