//! What a test harness may ask of the process: to say when it is ready, and not to outlive its parent or a time.
//!
//! Owns    [`HarnessFlags`], which are flags only: a file or a variable would give them to servers that nobody watches.
//! Rule    the parent is asked for four times a second.

use std::future::pending;
use std::time::Duration;

use clap::{Arg, ArgAction};
use redlatch_platform::parent::Parent;
use serde_json::json;
use tokio::time::sleep;

use super::served::Listening;
use crate::common::{Fault, duration};

/// The flags of the process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct HarnessFlags {
    /// The process without which this one ends.
    parent: Option<Parent>,
    /// After which time the process ends.
    lifetime: Option<Duration>,
    /// Whether a line of JSON on the standard output says that connections are accepted.
    pub(super) is_ready_told: bool,
}

impl HarnessFlags {
    /// Reads a flag and its words. False if it is no flag of the process.
    ///
    /// # Errors
    /// The words are not those that the flag takes.
    pub(super) fn read(&mut self, name: &str, words: &[String]) -> Result<bool, Fault> {
        let done = match (name, words) {
            ("exit-with-parent", []) => parent(None).map(|parent| self.parent = Some(parent)),
            ("exit-with-parent", [id]) => parent(Some(id)).map(|parent| self.parent = Some(parent)),
            ("exit-with-parent", _) => parent(Some("")).map(drop),
            ("max-lifetime", [time]) => duration::read(time).map(|time| self.lifetime = Some(time)),
            ("max-lifetime", _) => Err(duration::EXPECTED.into()),
            ("ready-json", []) => {
                self.is_ready_told = true;
                Ok(())
            }
            ("ready-json", _) => Err("takes no value".into()),
            _ => return Ok(false),
        };
        done.map_err(|fault| format!("{name} '{}': {fault} (flag --{name})", words.join(" ")))?;
        Ok(true)
    }

    /// Checks that the process may start.
    ///
    /// # Errors
    /// The parent has ended already.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let has_ended = self.parent.is_some_and(|parent| parent.has_ended() || parent.ended_before());
        match has_ended {
            true => Err("exit-with-parent: the process that started this one has ended already".into()),
            false => Ok(()),
        }
    }

    /// Waits until the process is to end; returns why.
    pub(super) async fn reason_to_end(&self) -> &'static str {
        tokio::select! {
            () = end_of_lifetime(self.lifetime) => "max-lifetime",
            () = end_of_parent(self.parent) => "exit-with-parent",
        }
    }
}

/// The process that started this one, whose number may be told.
fn parent(id: Option<&str>) -> Result<Parent, Fault> {
    match id {
        Some(id) => {
            let id = id.parse().map_err(|_| "must be the number of a process, or nothing")?;
            Ok(Parent::numbered(id))
        }
        None => Parent::find().ok_or_else(|| "the system does not say which process that is".into()),
    }
}

async fn end_of_lifetime(lifetime: Option<Duration>) {
    match lifetime {
        Some(lifetime) => sleep(lifetime).await,
        None => pending().await,
    }
}

async fn end_of_parent(parent: Option<Parent>) {
    let Some(parent) = parent else { return pending().await };
    while !parent.has_ended() {
        sleep(POLL).await;
    }
}

/// The line that says that connections are accepted, and where.
pub(super) fn ready_line(at: &Listening, unix: &str) -> String {
    let (is_tcp, scheme) = (!at.tcp.is_empty(), if at.tcp.is_empty() { "rediss" } else { "redis" });
    let mut ports: Vec<u16> =
        if is_tcp { &at.nodes } else { &at.tls }.iter().map(|address| address.port()).collect();
    // Several addresses may share a port.
    ports.dedup();
    let url = match (if is_tcp { &at.tcp } else { &at.tls }).first() {
        Some(address) => redlatch_server::process::url(scheme, &at.password, *address),
        None => format!("unix://{unix}"),
    };
    let mut line = json!({
        "pid": std::process::id(),
        "port": ports.first(),
        "ports": ports,
        "url": url,
        "version": env!("CARGO_PKG_VERSION"),
    });
    if let Some(address) = at.http.first() {
        line["http_port"] = address.port().into();
    }
    format!("{line}\n")
}

/// The flags as clap knows them.
pub(super) fn flags() -> [Arg; 3] {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    [
        flag(
            "ready-json",
            "Prints one line of JSON when the server accepts connections. The log goes only to logfile.",
        )
        .action(ArgAction::SetTrue),
        flag(
            "exit-with-parent",
            "Ends when its parent process ends. With PID, refuses to start under another parent.",
        )
        .value_name("PID")
        .num_args(0..=1),
        flag("max-lifetime", "Ends after this time: 500ms, 10s, 30m or 2h.").value_name("TIME"),
    ]
}

/// How often the parent is asked for.
const POLL: Duration = Duration::from_millis(250);
