//! Messages to systemd, received by a socket that stands for it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

use crate::support::binary::{Directory, Running, redlatch, refusal, signal};
use crate::support::waits::PATIENCE;

struct Systemd(UnixDatagram);

impl Systemd {
    fn listen(directory: &Directory) -> (Self, String) {
        let path = directory.path("notify");
        (Self::of(UnixDatagram::bind(&path).unwrap()), path)
    }

    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// The lines of the next message.
    fn next(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a message comes");
        String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned).collect()
    }

    /// The next message without those of the watchdog.
    fn next_state(&self) -> Vec<String> {
        loop {
            let message = self.next();
            if message != ["WATCHDOG=1"] {
                return message;
            }
        }
    }

    fn has_more(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        self.0.recv(&mut [0]).is_ok()
    }
}

fn supervised(by: &str, socket: &str) -> Command {
    let mut command = redlatch();
    command.args(["--port", "auto", "--supervised", by]).env("NOTIFY_SOCKET", socket);
    command
}

#[test]
fn a_supervisor_is_told_of_the_start_of_a_reload_and_of_the_end() {
    let directory = Directory::new();
    let (systemd, path) = Systemd::listen(&directory);
    let server = Running::start(&mut supervised("systemd", &path));
    let ready = systemd.next();
    assert_eq!(
        ready,
        ["READY=1".to_owned(), format!("STATUS=Accepts connections: tcp {}", server.address())]
    );
    assert!(server.ask("INFO server").contains("process_supervised:systemd\r\n"));

    server.signal("HUP");
    let [reloading, since] = &systemd.next()[..] else { panic!("two lines") };
    assert_eq!(reloading, "RELOADING=1");
    let micros = since.strip_prefix("MONOTONIC_USEC=").and_then(|micros| micros.parse::<u64>().ok());
    assert!(micros.is_some_and(|micros| micros > 0), "{since}");
    assert_eq!(systemd.next(), ["READY=1"]);

    server.signal("TERM");
    assert_eq!(systemd.next()[0], "STOPPING=1");
    assert_eq!(server.end(), Some(0));
    assert!(!systemd.has_more());
}

#[test]
fn a_watchdog_hears_from_the_server_until_it_ends() {
    let directory = Directory::new();
    let (systemd, path) = Systemd::listen(&directory);
    let mut command = supervised("auto", &path);
    command.env("WATCHDOG_USEC", "20000").args(["--threads", "2"]);
    let server = Running::start(&mut command);
    assert_eq!(systemd.next_state()[0], "READY=1");
    for _ in 0..5 {
        assert_eq!(systemd.next(), ["WATCHDOG=1"]);
    }
    server.signal("TERM");
    assert_eq!(systemd.next_state()[0], "STOPPING=1");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_watchdog_of_another_process_hears_nothing() {
    let directory = Directory::new();
    let (systemd, path) = Systemd::listen(&directory);
    let mut command = supervised("systemd", &path);
    let server = Running::start(command.env("WATCHDOG_USEC", "1000").env("WATCHDOG_PID", "1"));
    assert_eq!(systemd.next()[0], "READY=1");
    for _ in 0..3 {
        server.ask("PING");
    }
    server.signal("TERM");
    assert_eq!(systemd.next()[0], "STOPPING=1");
    server.end();
}

#[cfg(target_os = "linux")]
#[test]
fn a_socket_without_a_file_is_reached() {
    let name = format!("redlatch-notify-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let systemd = Systemd::of(socket);
    let _server = Running::start(&mut supervised("systemd", &format!("@{name}")));
    assert_eq!(systemd.next()[0], "READY=1");
}

#[test]
fn nobody_is_told_without_the_setting_and_a_missing_supervisor_is_named() {
    let directory = Directory::new();
    let (systemd, path) = Systemd::listen(&directory);
    let quiet = Running::start(&mut supervised("no", &path));
    quiet.signal("TERM");
    assert_eq!(quiet.end(), Some(0));
    assert!(!systemd.has_more());

    for (by, warning) in [("systemd", "NOTIFY_SOCKET is not set"), ("upstart", "upstart is not supported")] {
        let server = Running::start(redlatch().args(["--port", "auto", "--supervised", by]));
        assert!(server.said.contains("WARN") && server.said.contains(warning), "{}", server.said);
    }
    let server = Running::start(redlatch().args(["--port", "auto", "--supervised", "auto"]));
    assert!(!server.said.contains("WARN"), "{}", server.said);

    let said = refusal(&supervised("systemd", &directory.path("none")).output().unwrap());
    assert!(said.contains("NOTIFY_SOCKET") && said.contains("none"), "{said}");
}

#[test]
fn a_log_file_that_was_moved_away_is_opened_again_at_a_hangup() {
    let directory = Directory::new();
    let (systemd, path) = Systemd::listen(&directory);
    let (log, moved) = (directory.path("log"), directory.path("log.1"));
    let mut command = supervised("systemd", &path);
    let mut process = command.args(["--logfile", &log]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(systemd.next()[0], "READY=1");
    std::fs::rename(&log, &moved).unwrap();
    signal(&process, "HUP");
    assert_eq!((&*systemd.next()[0], &*systemd.next()[0]), ("RELOADING=1", "READY=1"));
    signal(&process, "TERM");
    assert!(process.wait().unwrap().success());
    let (old, new) = (std::fs::read_to_string(moved).unwrap(), std::fs::read_to_string(log).unwrap());
    assert!(old.contains("Ready to accept connections") && !old.contains("Ending"), "{old}");
    assert!(new.contains("Ending") && !new.contains("Ready"), "{new}");
}
