//! The files: other boots, damage, other servers, other versions.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytes::Bytes;
use redlatch_core::journal::frame::{self, Frames, Next};
use redlatch_core::journal::item::Item;
use redlatch_core::types::Seed;

use super::*;
use crate::support::binary::refusal;
use crate::support::waits::wait_until;

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

// Shows P-clean-stop.
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

// Shows P-memory-forgets.
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

/// Why a server does not start on this directory, which is called DIR.
fn refused(directory: &Directory) -> String {
    let said = refusal(&command(directory).output().unwrap());
    said.replace(directory.root().to_str().unwrap(), "DIR")
}

/// A server that is told of the longest lease, in milliseconds.
fn start_guarded(directory: &Directory, guard_ms: &str) -> Running {
    Running::start(command(directory).args(["--startup-guard", guard_ms]))
}

const ASKS_FOR_A_GUARD: &str = "so that locks may be held that nothing tells of: set startup-guard to the longest lease \
                                of the clients, in milliseconds, and nothing is granted for so long";

#[test]
fn damage_in_the_middle_needs_startup_guard_and_what_comes_before_is_restored() {
    let directory = Directory::new();
    let server = start(&directory);
    // Each of these waits for the disk.
    let asked = "SET a me\r\nSET b in-the-middle NX PX 600000\r\nSET c me\r\nSET d me";
    asked.split("\r\n").for_each(|request| assert_eq!(server.ask(request), "+OK\r\n"));
    server.kill();
    let file = &files(&directory)[0];
    let mut bytes = fs::read(file).unwrap();
    let at = bytes.windows(13).position(|bytes| bytes == b"in-the-middle").unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
    let says = format!("redlatch: DIR/data/journal-1: the journal is damaged, {ASKS_FOR_A_GUARD}");
    assert_eq!(refused(&directory), says);
    assert_eq!(refused(&directory), says, "a refusal changes nothing");
    let server = start_guarded(&directory, "600000");
    assert!(server.said.contains("The journal is damaged"), "{}", server.said);
    let left = info(&server, "quarantine_left_ms");
    assert!((500_000..=600_000).contains(&left), "{left}");
    assert_eq!(server.ask("GET a\r\nGET c\r\nSET b other NX PX 1000"), "$2\r\nme\r\n$-1\r\n$-1\r\n");
    server.kill();
    assert_eq!(info(&start(&directory), "quarantine_active"), 1, "it has been said once");
}

// Shows P-always-torn-end, P-quarantine-bounded.
#[test]
fn a_torn_end_after_another_boot_waits_for_the_leases_in_use_and_with_always_for_nothing() {
    for (policy, torn) in [("everysec", vec![0; 150]), ("always", vec![0; 150]), ("always", vec![0xa7; 150])]
    {
        let directory = Directory::new();
        let server = Running::start(command(&directory).args(["--appendfsync", policy]));
        assert_eq!(server.ask("SET held me NX PX 1000\r\nSET forever me"), "+OK\r\n+OK\r\n");
        server.kill();
        reboot(&directory);
        let file = &files(&directory)[0];
        fs::write(file, [fs::read(file).unwrap(), torn].concat()).unwrap();
        let server = start(&directory);
        assert!(server.said.contains("The journal is damaged"), "{}", server.said);
        assert_eq!(info(&server, "quarantine_active"), u64::from(policy == "everysec"), "{policy}");
        let left = info(&server, "quarantine_left_ms");
        assert!(left <= 1_000 + 5_000, "{policy}: the longest lease in use and 5 s, not {left}");
        assert_eq!(server.ask("GET forever"), "$2\r\nme\r\n");
    }
}

#[test]
fn a_directory_whose_journal_is_gone_needs_startup_guard() {
    let directory = Directory::new();
    let server = start(&directory);
    assert_eq!(server.ask("SET held me NX PX 600000"), "+OK\r\n");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    files(&directory).iter().for_each(|file| fs::remove_file(file).unwrap());
    let says = format!("redlatch: dir 'DIR/data': the journal is gone, {ASKS_FOR_A_GUARD}");
    assert_eq!(refused(&directory), says);
    let server = start_guarded(&directory, "600000");
    assert_eq!(server.ask("SET held other NX PX 1000"), "$-1\r\n");
    assert!(info(&server, "quarantine_left_ms") > 500_000);
    server.kill();
    assert_eq!(info(&start(&directory), "quarantine_active"), 1);
}

#[test]
fn files_that_are_removed_under_a_server_are_written_again() {
    for name in ["data", "data/journal-1", "data/identity", "data/lock"] {
        let directory = Directory::new();
        let mut server = start(&directory);
        assert_eq!(server.ask("SET held me NX PX 600000"), "+OK\r\n");
        let path = PathBuf::from(directory.path(name));
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        assert_eq!(server.ask("SET later me NX PX 600000"), "+OK\r\n");
        server.wait_for("Files of the journal are gone");
        let written = || directory.root().join("data/journal-2").exists();
        wait_until("the journal is rewritten", || {
            written() && server.ask("INFO persistence").contains("aof_rewrite_in_progress:0")
        });
        assert_eq!(server.ask("SET last me NX PX 600000"), "+OK\r\n");
        assert_eq!(refused(&directory), "redlatch: dir 'DIR/data': another server uses it", "{name}");
        server.kill();
        let server = start(&directory);
        assert_eq!(server.ask("EXISTS held later last"), ":3\r\n", "{name}");
        assert_eq!(info(&server, "quarantine_active"), 0, "{name}");
    }
}

#[test]
fn a_clean_stop_writes_files_again_that_were_removed() {
    let directory = Directory::new();
    let server = start(&directory);
    assert_eq!(
        server.ask("SET held me NX PX 600000\r\nLOCK.ACQUIRE k me LEASE 600000").lines().next(),
        Some("+OK")
    );
    fs::remove_dir_all(directory.path("data")).unwrap();
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    let server = start(&directory);
    assert_eq!(server.ask("EXISTS held k"), ":2\r\n");
    assert!(server.ask("LOCK.ACQUIRE j me LEASE 600000").contains(":3\r\n"), "tokens go on");
    assert_eq!(info(&server, "quarantine_active"), 0);
}

#[test]
fn a_clean_stop_ends_a_copy_that_was_begun_for_removed_files() {
    let directory = Directory::new();
    let mut server = start(&directory);
    let keys: String = (0..50_000).map(|number| format!("SET {number} me NX PX 600000\r\n")).collect();
    assert_eq!(server.ask(&keys).matches("+OK").count(), 50_000);
    fs::remove_dir_all(directory.path("data")).unwrap();
    server.wait_for("Files of the journal are gone");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    let server = start(&directory);
    assert_eq!(server.ask("DBSIZE"), ":50000\r\n");
    assert_eq!(info(&server, "quarantine_active"), 0);
}

#[test]
fn a_server_whose_directory_another_one_has_taken_ends() {
    let directory = Directory::new();
    let mut server = start(&directory);
    fs::remove_dir_all(directory.path("data")).unwrap();
    let other = loop {
        // The first one may have made its directory again before the other one starts.
        if let Ok(other) = std::panic::catch_unwind(|| start(&directory)) {
            break other;
        }
        fs::remove_dir_all(directory.path("data")).unwrap();
    };
    server.wait_for("The journal is gone: the server ends");
    assert_eq!(server.end(), Some(74));
    assert_eq!(other.ask("SET k v"), "+OK\r\n");
}

#[test]
fn always_without_a_directory_says_that_nothing_is_kept() {
    let says = "appendfsync always has no effect without a dir: nothing outlives the server";
    let said = |more: &[&str]| Running::start(redlatch().args(["--port", "auto"]).args(more)).said.clone();
    assert!(said(&["--appendfsync", "always"]).contains(says));
    assert!(!said(&["--appendfsync", "everysec"]).contains(says), "it is in every redis.conf");
    let directory = Directory::new();
    assert!(!start(&directory).said.contains(says));
}

#[test]
fn all_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Directory::new();
    let (acl, conf) =
        (place.write("users.acl", "user default on nopass ~* &* +@all\n"), place.path("r.conf"));
    let (dir, log, audit) = (place.path("new/dir"), place.path("log"), place.path("audit"));
    fs::write(&conf, format!("dir {dir}\naclfile {acl}\nlogfile {log}\naudit-log {audit}\n")).unwrap();
    for file in [&acl, &conf] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let program = redlatch();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022 && exec \"$0\" \"$@\""]).arg(program.get_program());
    command.args([&conf, "--port", "auto", "--port-file", &place.path("port")]);
    let mut process = command.stdin(Stdio::null()).spawn().unwrap();
    let port = loop {
        match fs::read_to_string(place.path("port")) {
            Ok(port) => break port.trim().to_owned(),
            Err(_) => assert!(process.try_wait().unwrap().is_none(), "it has ended"),
        }
    };
    let mut peer = Peer::to(format!("127.0.0.1:{port}").parse().unwrap());
    for request in ["SET k v", "ACL SAVE", "CONFIG REWRITE"] {
        assert_eq!(peer.ask(format!("{request}\r\n").as_bytes()), "+OK", "{request}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let mut modes = Vec::new();
    for name in ["new", "new/dir", "new/dir/data"] {
        modes.push((name.to_owned(), 0o700));
    }
    for entry in fs::read_dir(format!("{dir}/data")).unwrap() {
        modes.push((format!("new/dir/data/{}", entry.unwrap().file_name().display()), 0o600));
    }
    assert!(modes.len() >= 7, "{modes:?}");
    ["users.acl", "r.conf", "log", "audit"].iter().for_each(|name| modes.push((name.to_string(), 0o600)));
    for (name, expected) in modes {
        let mode = fs::metadata(place.path(&name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(format!("{mode:o}"), format!("{expected:o}"), "{name}");
    }
}

#[test]
fn a_directory_in_use_a_newer_version_and_another_server_are_refused_by_name() {
    let directory = Directory::new();
    let server = start(&directory);
    let refused = || refused(&directory);
    assert_eq!(refused(), "redlatch: dir 'DIR/data': another server uses it");
    assert_eq!(server.ask("PING"), "+PONG\r\n");
    server.kill();
    let original = fs::read(directory.path("data/journal-1")).unwrap();
    directory.write("data/journal-1", "redlatch journal 5\nwhatever comes then");
    assert_eq!(
        refused(),
        "redlatch: DIR/data/journal-1: is a journal of version 5, and this program reads versions up to 4"
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
    // 200 MB of changes.
    let mut largest = 0;
    for _ in 0..200 {
        peer.send(batch.as_bytes());
        (0..100).for_each(|_| assert_eq!(peer.line(), "+OK"));
        largest = largest.max(info(&server, "aof_current_size"));
    }
    assert!(largest < 96 << 20, "{largest} bytes");
    while files(&directory).len() > 1 {
        assert_eq!(peer.ask(b"PING\r\n"), "+PONG");
    }
    server.kill();
    assert_eq!(start(&directory).ask("STRLEN key"), ":10000\r\n");
}
