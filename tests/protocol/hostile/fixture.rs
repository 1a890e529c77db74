//! The fixture of every hostile test: a server, a well-behaved bystander, and peers that may misbehave.

use redlatch::Server;

pub(crate) use crate::support::stream::Peer;
pub(crate) use crate::support::waits::PATIENCE;
use crate::support::waits::wait_until;
use crate::support::words::{info_field, resident_kib};

pub(crate) const MIB: usize = 1024 * 1024;

/// A server and a well-behaved client.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) bystander: Peer,
}

impl Fixture {
    pub(crate) fn set() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        let builder =
            settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(*name, *value));
        let server = builder.start_blocking().expect("a server starts");
        let bystander = Peer::to(server.addr());
        Self { server, bystander }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::to(self.server.addr())
    }

    /// Asserts that the bystander can take and release a lock and that new connections are served.
    pub(crate) fn goes_on(&mut self) {
        assert_eq!(self.bystander.ask(b"SET lock me NX PX 30000\r\n"), "+OK");
        assert_eq!(self.bystander.ask(b"DEL lock\r\n"), ":1");
        assert_eq!(self.peer().ask(b"PING\r\n"), "+PONG", "and arrivals are welcome");
        self.server.assert_laws();
    }

    /// Asks until the number in a field of INFO is as wanted.
    pub(crate) fn until(&mut self, field: &str, wanted: impl Fn(u64) -> bool) {
        wait_until(field, || wanted(self.info(field)));
    }

    pub(crate) fn info(&mut self, field: &str) -> u64 {
        info_field(&self.bystander.text(b"INFO\r\n"), field)
    }
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    resident_kib(std::process::id()) as usize * 1024
}

/// Runs `act` in its own process, without the memory of other tests. Fails if memory has grown by more than `most_mib`
/// at any call that `act` makes of its argument.
pub(crate) fn costs_at_most(most_mib: usize, act: impl FnOnce(&mut dyn FnMut())) {
    const ALONE: &str = "REDLATCH_TEST_ALONE";
    let name = std::thread::current().name().expect("a test's thread has its name").to_owned();
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        let (before, mut most) = (resident(), 0);
        act(&mut || most = most.max(resident().saturating_sub(before)));
        assert!(most <= most_mib * MIB, "{} MiB, where {most_mib} are enough", most / MIB);
        return;
    }
    let program = std::env::current_exe().expect("a test knows its program");
    let output = std::process::Command::new(program)
        .args(["--exact", &name, "--nocapture", "--test-threads", "1"])
        .env(ALONE, &name)
        .output()
        .expect("a test's program starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
