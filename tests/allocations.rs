//! What the path of a command may ask of the allocator: nothing, for the commands that a lock server hears most.
//!
//! Rule    counted, not timed: the numbers are exact and the same on every machine.
//! Rule    one test in this file, so that no other thread allocates on the counted thread's account.

#![allow(unsafe_code, reason = "a counting allocator is an allocator, and that trait is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use std::sync::Arc;

use redlatch::clock::{Clock, LockTime, Now};
use redlatch::commands::Shared;
use redlatch::engine::{Engine, Flow};
use redlatch::keyspace::{Keyspace, Layout};
use redlatch::resp::Decoder;
use redlatch::state::clients::Client;
use redlatch::state::session::Session;
use redlatch::state::settings::Settings;

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches a `Cell` that needs no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(memory) }
    }

    unsafe fn realloc(&self, place: *mut u8, memory: Memory, bytes: usize) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(place, memory, bytes) }
    }

    unsafe fn dealloc(&self, place: *mut u8, memory: Memory) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { lock: LockTime::from_millis(1_000), wall_offset_ms: 0 }
    }

    fn micros(&self) -> u64 {
        1_000_000
    }

    fn wall_micros(&self) -> u64 {
        1_000_000
    }
}

struct Desk {
    engine: Engine,
    session: Session,
    decoder: Decoder,
    out: Vec<u8>,
}

impl Desk {
    fn new() -> Self {
        let layout = Layout { shards: 4, databases: 16, seed: 1, journal: None };
        let shared = Shared::new(Keyspace::new(layout, || {}), Settings::default(), Arc::new(Still), 1);
        let engine = Engine::new(Arc::new(shared));
        let client = Client::new(1, "test".into(), "test".into(), false, LockTime::from_millis(1_000));
        let session = engine.connect(client);
        Self { engine, session, decoder: Decoder::new(), out: Vec::with_capacity(4096) }
    }

    /// Decodes and carries out one request; its answer.
    fn ask(&mut self, bytes: &[u8]) -> &[u8] {
        self.out.clear();
        let mut batch = self.engine.batch();
        let taken = self.decoder.next(bytes, self.engine.trust(&self.session)).expect("a sound frame");
        assert_eq!(taken, Some(bytes.len()));
        let request = self.decoder.request(bytes);
        let flow = self.engine.execute(&mut self.session, request, &mut batch, &mut self.out);
        assert_eq!(flow, Flow::Next);
        self.engine.end_batch(&self.session, batch);
        &self.out
    }

    /// Allocations that the same request costs, `times` over, once warm.
    fn count(&mut self, bytes: &[u8], answer: &[u8], times: u64) -> u64 {
        for _ in 0..4 {
            assert_eq!(self.ask(bytes), answer, "{}", bytes.escape_ascii());
        }
        let before = ASKED.with(Cell::get);
        for _ in 0..times {
            self.ask(bytes);
        }
        let after = ASKED.with(Cell::get);
        assert_eq!(self.out, answer);
        after - before
    }
}

fn frame(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

#[test]
fn commands_of_a_lock_do_not_allocate() {
    const TIMES: u64 = 1_000;
    let mut desk = Desk::new();
    let before = ASKED.with(Cell::get);
    drop(std::hint::black_box(vec![0_u8; 64]));
    assert_eq!(ASKED.with(Cell::get) - before, 1, "the counter counts");

    let token = "0123456789abcdef0123456789abcdef";
    assert_eq!(desk.ask(&frame(&["SET", "lock:stock", token, "NX", "PX", "30000"])), b"+OK\r\n");
    let value = format!("${}\r\n{token}\r\n", token.len());
    let quiet: &[(&[&str], &str)] = &[
        (&["GET", "lock:stock"], &value),
        (&["GET", "lock:other"], "$-1\r\n"),
        (&["SET", "lock:stock", "somebody", "NX", "PX", "30000"], "$-1\r\n"),
        (&["PEXPIRE", "lock:stock", "30000"], ":1\r\n"),
        (&["PTTL", "lock:stock"], ":30000\r\n"),
        (&["EXISTS", "lock:stock"], ":1\r\n"),
        (&["DEL", "lock:other"], ":0\r\n"),
    ];
    for (words, answer) in quiet {
        assert_eq!(desk.count(&frame(words), answer.as_bytes(), TIMES), 0, "{words:?}");
    }
    recognised_scripts(&mut desk, token, TIMES);
    granted(&mut desk, token);
}

/// A refused release, a granted extension and a guarded read by EVALSHA.
fn recognised_scripts(desk: &mut Desk, token: &str, times: u64) {
    let release =
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    let extend = "if redis.call('get',KEYS[1]) == ARGV[1] then \
                  return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
    let load = |desk: &mut Desk, script: &str| {
        let answer = String::from_utf8(desk.ask(&frame(&["SCRIPT", "LOAD", script])).to_vec())
            .expect("a SHA1 is ASCII");
        answer.lines().nth(1).expect("a bulk string with the digest").to_owned()
    };
    let (release, extend) = (load(desk, release), load(desk, extend));
    let refused = frame(&["EVALSHA", &release, "1", "lock:stock", "somebody"]);
    assert_eq!(desk.count(&refused, b":0\r\n", times), 0, "a refused release");
    let extended = frame(&["EVALSHA", &extend, "1", "lock:stock", token, "30000"]);
    assert_eq!(desk.count(&extended, b":1\r\n", times), 0, "an extension");

    let (take, give) = (
        frame(&["SET", "lock:cycle", token, "NX", "PX", "30000"]),
        frame(&["EVALSHA", &release, "1", "lock:cycle", token]),
    );
    let cycle = |desk: &mut Desk| {
        assert_eq!(desk.ask(&take), b"+OK\r\n");
        assert_eq!(desk.ask(&give), b":1\r\n");
    };
    (0..4).for_each(|_| cycle(desk));
    let before = ASKED.with(Cell::get);
    (0..times).for_each(|_| cycle(desk));
    let asked = ASKED.with(Cell::get) - before;
    assert!(asked <= times, "a lock taken and given back asks the allocator {asked} times in {times} cycles");
}

/// Locks on keys that were not there: one allocation each at most, growth of the tables included.
fn granted(desk: &mut Desk, token: &str) {
    const LOCKS: usize = 20_000;
    let frames: Vec<_> =
        (0..LOCKS).map(|key| frame(&["SET", &format!("lock:{key}"), token, "NX", "PX", "30000"])).collect();
    let before = ASKED.with(Cell::get);
    for frame in &frames {
        assert_eq!(desk.ask(frame), b"+OK\r\n");
    }
    let asked = ASKED.with(Cell::get) - before;
    assert!(asked <= LOCKS as u64, "{LOCKS} granted locks ask the allocator {asked} times");
}
