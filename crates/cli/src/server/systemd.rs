//! systemd: what it is told about the server, and the sockets that it hands over.
//!
//! Owns    [`Supervisor`], the way to the socket in NOTIFY_SOCKET, and the reading of LISTEN_FDS.
//! Rule    a message that systemd does not take is logged and lost: the server goes on.
//! Source  the manual pages sd_notify(3) and sd_listen_fds(3).

use std::future::pending;
use std::io;
use std::time::Duration;

use redlatch_platform::systemd::{HandedOver, Notifier, Socket};
use redlatch_server::process::Inherited;

use super::served::Served;
use crate::common::Fault;

/// The way to tell systemd how the server is.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// `None`: nobody is told.
    notifier: Option<Notifier>,
}

/// Sockets that may be handed over: far more than there are names for them.
const SOCKETS_MAX: usize = 64;

impl Supervisor {
    /// Finds the socket that the setting `supervised` asks for.
    ///
    /// # Errors
    /// NOTIFY_SOCKET names no socket.
    pub(super) fn find(supervised: &str) -> Result<Self, Fault> {
        let nobody = Ok(Self { notifier: None });
        if supervised == "upstart" {
            tracing::warn!("supervised upstart: no notification, because upstart is not supported");
            return nobody;
        }
        if !matches!(supervised, "systemd" | "auto") {
            return nobody;
        }
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            if supervised == "systemd" {
                tracing::warn!(
                    "supervised systemd: no notification, because NOTIFY_SOCKET is not set; a unit needs Type=notify"
                );
            }
            return nobody;
        };
        let fault = |error| format!("NOTIFY_SOCKET '{}': {error}", address.to_string_lossy());
        Ok(Self { notifier: Some(Notifier::to(&address).map_err(fault)?) })
    }

    /// Says that the server is ready, and how it is.
    pub(super) fn tell_ready(&self, status: Option<&str>) {
        self.tell(|notifier| notifier.ready(status));
    }

    /// Says that the server ends.
    pub(super) fn tell_stopping(&self) {
        self.tell(|notifier| notifier.stopping("Answers the last requests"));
    }

    /// Says that the configuration is being read again, and since when.
    pub(super) fn tell_reloading(&self) {
        self.tell(Notifier::reloading);
    }

    fn tell(&self, message: impl FnOnce(&Notifier) -> io::Result<()>) {
        if let Some(Err(error)) = self.notifier.as_ref().map(message) {
            tracing::warn!(%error, "Cannot notify systemd");
        }
    }

    /// Tells systemd for ever that every worker answers, twice as often as it asks for. A worker that hangs ends that.
    pub(super) async fn watch(&self, server: &Served) {
        let Some(period) = self.notifier.as_ref().and_then(Notifier::period) else { return pending().await };
        let mut ticks = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            server.workers_answer().await;
            self.tell(Notifier::alive);
        }
    }
}

/// Takes the listening sockets that the environment hands to this process. It is called before anything else is opened: the
/// numbers from 3 on are theirs.
///
/// # Errors
/// A variable is wrong, or a descriptor is no socket that listens.
pub(super) fn inherited() -> Result<Inherited, Fault> {
    let read = |name: &str| std::env::var(name).ok();
    let names = handed_over(read, std::process::id())?;
    let mut found = Inherited::default();
    if names.is_empty() {
        return Ok(found);
    }
    let mut sockets = HandedOver::find();
    for (index, name) in names.iter().enumerate() {
        take(&mut sockets, index, name, &mut found)
            .map_err(|reason| format!("LISTEN_FDS: socket {} ({name}): {reason}", index + 1))?;
    }
    Ok(found)
}

/// The names of the sockets that are handed to the process `own`: none, unless LISTEN_PID is its number.
fn handed_over(read: impl Fn(&str) -> Option<String>, own: u32) -> Result<Vec<String>, Fault> {
    let (Some(pid), Some(count)) = (read("LISTEN_PID"), read("LISTEN_FDS")) else { return Ok(Vec::new()) };
    let pid: u32 = pid.parse().map_err(|_| format!("LISTEN_PID '{pid}': must be the number of a process"))?;
    if pid != own {
        return Ok(Vec::new());
    }
    let fits = count.parse().ok().filter(|count: &usize| *count <= SOCKETS_MAX);
    let count = fits.ok_or_else(|| format!("LISTEN_FDS '{count}': must be between 0 and {SOCKETS_MAX}"))?;
    let Some(text) = read("LISTEN_FDNAMES") else { return Ok(vec!["redlatch".to_owned(); count]) };
    let names: Vec<String> = text.split(':').map(str::to_owned).collect();
    match names.len() == count || (count == 0 && text.is_empty()) {
        true => Ok(names.into_iter().take(count).collect()),
        false => Err(format!("LISTEN_FDNAMES '{text}': must name {count} sockets, as LISTEN_FDS says")),
    }
}

/// Takes one socket for what its name says. Without `FileDescriptorName=` the name is that of the unit, `redlatch.socket`.
fn take(sockets: &mut HandedOver, index: usize, name: &str, found: &mut Inherited) -> Result<(), Fault> {
    let (place, is_main) = match name.strip_suffix(".socket").unwrap_or(name) {
        "redlatch" | "unknown" | "" => (&mut found.tcp, true),
        "http" | "redlatch-http" => (&mut found.http, false),
        "tls" | "redlatch-tls" => (&mut found.tls, false),
        _ => return Err("the name must be redlatch, http or tls".to_owned()),
    };
    match sockets.take(index).map_err(|error| error.to_string())? {
        Some(Socket::Tcp(listener)) => place.push(listener),
        Some(Socket::Unix(listener)) if is_main => found.unix.push(listener),
        Some(Socket::Unix(_)) => return Err("must be a TCP socket".to_owned()),
        None => return Err("it is not there".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &[(&str, &str)]) -> Result<Vec<String>, Fault> {
        let read = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        handed_over(read, 7)
    }

    #[test]
    fn sockets_are_taken_only_by_the_process_that_they_are_for() {
        let both = |pid| names(&[("LISTEN_PID", pid), ("LISTEN_FDS", "2")]).unwrap().len();
        assert_eq!((both("7"), both("8")), (2, 0));
        assert!(names(&[("LISTEN_FDS", "2")]).unwrap().is_empty());
        assert!(names(&[("LISTEN_PID", "7")]).unwrap().is_empty());
    }

    #[test]
    fn each_socket_has_the_name_that_the_environment_gives_it() {
        let named = |count, list| {
            names(&[("LISTEN_PID", "7"), ("LISTEN_FDS", count), ("LISTEN_FDNAMES", list)]).unwrap()
        };
        assert_eq!(named("2", "redlatch:tls"), ["redlatch", "tls"]);
        assert_eq!(named("1", ""), [""]);
        assert!(named("0", "").is_empty());
    }

    #[test]
    fn wrong_numbers_are_refused_with_their_bounds() {
        for (pid, count, list, said) in [
            ("x", "1", "redlatch", "LISTEN_PID 'x'"),
            ("7", "-1", "redlatch", "LISTEN_FDS '-1': must be between 0 and 64"),
            ("7", "65", "redlatch", "LISTEN_FDS '65': must be between 0 and 64"),
            ("7", "99999999999999999999", "redlatch", "must be between 0 and 64"),
            ("7", "2", "redlatch", "LISTEN_FDNAMES 'redlatch': must name 2 sockets"),
        ] {
            let variables = [("LISTEN_PID", pid), ("LISTEN_FDS", count), ("LISTEN_FDNAMES", list)];
            let refused = names(&variables).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
