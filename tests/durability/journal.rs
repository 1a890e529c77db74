//! The files: other boots, damage, other servers, other versions.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use redlatch_core::journal::frame::{self, Frames, Next};
use redlatch_core::journal::item::Item;
use redlatch_core::types::Seed;

use super::*;
use crate::support::binary::refusal;

fn files(directory: &Directory) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.root().join("data")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_str().unwrap().contains("journal-")).collect()
}

/// Changes the items of all files.
fn rewrite(directory: &Directory, change: impl Fn(&mut Item)) {
    for file in files(directory) {
        let bytes = fs::read(&file).unwrap();
        let (mut frames, mut written) = (Frames::open(&bytes[..]).unwrap().unwrap(), frame::first_line());
        while let Next::Frame(body) = frames.read().unwrap() {
            let mut buffer = Vec::new();
            frame::body_start(&mut buffer);
            items(body).iter_mut().for_each(|item| {
                change(item);
                item.encode(&mut buffer);
            });
            frame::seal(&mut buffer).unwrap();
            written.extend_from_slice(&buffer);
        }
        fs::write(&file, written).unwrap();
    }
}

fn items(mut body: Bytes) -> Vec<Item> {
    let mut items = Vec::new();
    while !body.is_empty() {
        items.push(Item::decode(&mut body, Seed::of(1)).unwrap());
    }
    items
}

/// Makes the journal one of another boot of the machine.
fn reboot(directory: &Directory) {
    rewrite(directory, |item| {
        if let Item::Opened(opened) = item {
            opened.boot = Some([0xB0; 16]);
        }
    });
}

fn pttl(server: &Running, key: &str) -> i64 {
    server.ask(&format!("PTTL {key}")).trim().strip_prefix(':').unwrap().parse().unwrap()
}

#[test]
fn after_another_boot_nothing_is_granted_until_the_horizon() {
    let directory = Directory::new();
    let server = start(&directory);
    assert_eq!(server.ask("SET held me NX PX 30000\r\nSET released me NX PX 30000"), "+OK\r\n+OK\r\n");
    server.kill();
    reboot(&directory);
    let server = start(&directory);
    assert!(server.said.contains("keys=2"), "{}", server.said);
    let left = info(&server, "quarantine_left_ms");
    assert!((25_000..=36_000).contains(&left), "{left}");
    let answers =
        server.ask("SET new me NX PX 30000\r\nGET held\r\nPEXPIRE held 60000\r\nDEL released\r\nINCR n");
    let (first, error) = answers.split_once('-').map(|(first, error)| (first.to_owned(), error)).unwrap();
    assert_eq!(first, "$", "SET NX: held");
    assert!(
        error.contains("$2\r\nme\r\n:0\r\n:1\r\n-QUARANTINE this server may have forgotten locks"),
        "{answers}"
    );
    assert!((1..=36_000).contains(&pttl(&server, "any")), "a key that may be held");
    // A kill does not end it.
    server.kill();
    let server = start(&directory);
    assert_eq!(info(&server, "quarantine_active"), 1);
    assert!((1..=left).contains(&info(&server, "quarantine_left_ms")));
    // Nor does an end in good order.
    server.signal("TERM");
    server.end();
    assert_eq!(info(&start(&directory), "quarantine_active"), 1);
}

#[test]
fn a_clean_end_needs_no_quarantine_after_another_boot() {
    let directory = Directory::new();
    let server = start(&directory);
    assert_eq!(server.ask("SET held me NX PX 30000"), "+OK\r\n");
    server.signal("TERM");
    server.end();
    reboot(&directory);
    let server = start(&directory);
    assert_eq!(server.ask("SET held me NX PX 1\r\nSET new me NX PX 30000"), "$-1\r\n+OK\r\n");
    assert!(pttl(&server, "held") <= 30_000);
}

#[test]
fn memory_mode_forgets_and_waits() {
    let directory = Directory::new();
    let memory = || Running::start(command(&directory).args(["--appendonly", "no"]));
    let server = memory();
    assert_eq!(server.ask("CONFIG GET appendonly"), "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    assert_eq!(server.ask("SET held me NX PX 30000\r\nSET forever me"), "+OK\r\n+OK\r\n");
    server.signal("TERM");
    server.end();
    let server = memory();
    assert_eq!(server.ask("DBSIZE\r\nSET other me NX PX 1000"), ":0\r\n$-1\r\n");
    assert!(info(&server, "quarantine_left_ms") <= 30_000, "no longer than the lease that was running");
    // It is one of the keys that were not kept.
    server.signal("TERM");
    server.end();
    assert_eq!(start(&directory).ask("DBSIZE"), ":0\r\n");
}

#[test]
fn a_damaged_journal_restores_what_comes_before_and_waits() {
    let directory = Directory::new();
    let server = start(&directory);
    for key in ["a", "b", "c"] {
        assert_eq!(server.ask(&format!("SET {key} me NX PX 30000")), "+OK\r\n");
    }
    server.kill();
    let file = &files(&directory)[0];
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(3).rposition(|bytes| bytes == b"\x01cb" || bytes[1..] == *b"me").unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
    let server = start(&directory);
    assert!(server.said.contains("The journal is damaged"), "{}", server.said);
    assert!(info(&server, "quarantine_left_ms") > 60_000, "the horizon may be in what cannot be read");
    assert_eq!(server.ask("GET a\r\nGET c\r\nSET c other NX PX 1000"), "$2\r\nme\r\n$-1\r\n$-1\r\n");
    server.kill();
    assert_eq!(info(&start(&directory), "quarantine_active"), 1);
}

#[test]
fn a_directory_in_use_a_newer_version_and_another_server_are_refused_by_name() {
    let directory = Directory::new();
    let server = start(&directory);
    let refused = || {
        let said = refusal(&command(&directory).output().unwrap());
        said.replace(directory.root().to_str().unwrap(), "DIR")
    };
    assert_eq!(refused(), "redlatch: dir 'DIR/data': another server uses it");
    assert_eq!(server.ask("PING"), "+PONG\r\n");
    server.kill();
    let original = fs::read(directory.path("data/journal-1")).unwrap();
    directory.write("data/journal-1", "redlatch journal 3\nwhatever comes then");
    assert_eq!(
        refused(),
        "redlatch: DIR/data/journal-1: is a journal of version 3, and this program reads versions up to 2"
    );
    fs::write(directory.path("data/journal-1"), &original).unwrap();
    drop(start(&directory));
    rewrite(&directory, |item| {
        if let Item::Opened(opened) = item
            && opened.number == 2
        {
            opened.server = [9; 20];
        }
    });
    assert_eq!(refused(), "redlatch: DIR/data/journal-2: belongs to another server");
}

#[test]
fn keys_of_databases_that_are_not_there_refuse_the_start() {
    let directory = Directory::new();
    let server = start(&directory);
    assert_eq!(server.ask("SELECT 9\r\nSET k v"), "+OK\r\n+OK\r\n");
    server.signal("TERM");
    server.end();
    let output = command(&directory).args(["--databases", "4"]).output().unwrap();
    assert_eq!(refusal(&output), "redlatch: databases: the journal has keys in database 9");
    assert_eq!(start(&directory).ask("SELECT 9\r\nGET k"), "+OK\r\n$1\r\nv\r\n");
}

#[test]
fn the_journal_stays_small_while_a_lock_is_taken_again_and_again() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut peer = peer(&server);
    let value = "x".repeat(10_000);
    let batch = format!("SET key {value} PX 60000\r\n").repeat(100);
    // 150 MB of changes.
    let mut largest = 0;
    for _ in 0..150 {
        peer.send(batch.as_bytes());
        (0..100).for_each(|_| assert_eq!(peer.line(), "+OK"));
        largest = largest.max(info(&server, "aof_current_size"));
    }
    assert!(largest < 64 << 20, "{largest} bytes");
    while files(&directory).len() > 1 {
        assert_eq!(peer.ask(b"PING\r\n"), "+PONG");
    }
    server.kill();
    assert_eq!(start(&directory).ask("STRLEN key"), ":10000\r\n");
}
