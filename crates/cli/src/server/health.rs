//! `redlatch health`: whether a server is alive, for container health checks.
//!
//! Rule    a server in quarantine is alive, and so is one that answers BUSY, has no place for another client, or refuses or
//!         delays the login: a restart would lose every lock, and mend nothing.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Command};
use redlatch_client::wire::{Connection, FULL, Reply, Target, at, open};
use redlatch_client::{Error, Trust};
use tokio::time::timeout;

use crate::common::{Fault, ServerAddress, Subcommand, exit, print, runtime, with_trust};

/// How long a server may take for each step: to be connected to, to answer a request.
const STEP_MAX: Duration = Duration::from_secs(2);
/// How long a server that has answered may take for the login, and to tell of a quarantine.
const MORE_MAX: Duration = Duration::from_millis(250);

pub(super) const HEALTH: Subcommand =
    Subcommand::new("health", "Checks that a server answers PING.", arguments, |matches| {
        let server = ServerAddress::read(matches);
        Ok(Box::new(move || {
            print(check(server)?.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }))
    })
    .misused(exit::NO)
    .only(&[exit::DONE, exit::NO]);

fn arguments(command: Command) -> Command {
    let url =
        Arg::new("url").value_name("URL").help("redis[s]://[[user]:password@]host[:port] or unix:///path.");
    with_trust(command.arg(url))
}

/// Asks the server for a PONG. Returns the text to print for a healthy server: empty if it answers PONG and grants locks.
///
/// # Errors
/// The server cannot be reached or trusted, takes more than [`STEP_MAX`] for a step, or gives an answer that does not
/// show a working server.
fn check(server: ServerAddress) -> Result<String, Fault> {
    let (target, trust) = server.find()?;
    let address = &target.address;
    let answer = runtime()?.block_on(ask_for_pong(&target, &trust));
    match answer.map_err(|error| error.to_string())? {
        Answer::Pong(None) => Ok(String::new()),
        Answer::Pong(Some(text)) => Ok(format!("{address} is alive, and in quarantine: {text}\n")),
        Answer::LoginWaits => Ok(format!("{address} is alive, and delays the login\n")),
        Answer::Other(Reply::Error(text)) if is_alive(&text) => {
            Ok(format!("{address} is alive: '-{text}'\n"))
        }
        Answer::Other(Reply::Error(text)) => Err(format!("{address} answers '-{text}'")),
        Answer::Other(reply) => Err(format!("{address} answers '{reply:?}'")),
    }
}

/// What a server has answered.
enum Answer {
    /// PONG, and what it says of a quarantine.
    Pong(Option<String>),
    /// It does not answer the login for now: others from this address were wrong.
    LoginWaits,
    Other(Reply),
}

/// Whether an error reply shows a working server: one that runs a long script, is full, or refuses or lacks the login, or a
/// Redis that cannot save. LOADING does not, because locks cannot be taken yet.
fn is_alive(answer: &str) -> bool {
    matches!(answer.split(' ').next(), Some("BUSY" | "MISCONF" | "NOAUTH" | "WRONGPASS")) || answer == FULL
}

/// Asks without HELLO, which an older server may not know, and logs in only where the server asks for that.
async fn ask_for_pong(target: &Target, trust: &Trust) -> Result<Answer, Error> {
    let mut connection = open(target, trust, STEP_MAX).await?;
    let ping = async |connection: &mut Connection| connection.ask(&[b"PING"]).await;
    let mut reply = ping(&mut connection).await.map_err(|error| at(target, error))?;
    if matches!(&reply, Reply::Error(text) if text.starts_with("NOAUTH")) && !target.password.is_empty() {
        match timeout(MORE_MAX, connection.authenticate(target)).await {
            Err(_) => return Ok(Answer::LoginWaits),
            Ok(Err(Error::Refused(text))) => return Ok(Answer::Other(Reply::Error(text))),
            Ok(done) => done.map_err(|error| at(target, error))?,
        }
        reply = ping(&mut connection).await.map_err(|error| at(target, error))?;
    }
    if !reply.is("PONG") {
        return Ok(Answer::Other(reply));
    }
    // A user without INFO, a server that runs a script, or another server says nothing of a quarantine.
    let info = timeout(MORE_MAX, connection.ask(&[b"INFO", b"persistence"])).await;
    let info = info.ok().and_then(Result::ok);
    let quarantine =
        info.and_then(|info| info.text().and_then(|info| quarantine(&String::from_utf8_lossy(info))));
    Ok(Answer::Pong(quarantine))
}

/// Until when and why the server is in quarantine, if INFO says that it is.
fn quarantine(info: &str) -> Option<String> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')))
    };
    field("quarantine_active").filter(|active| *active == "1")?;
    let (left_ms, reason) = (field("quarantine_left_ms")?, field("quarantine_reason")?);
    let left = redlatch_proto::duration::duration(left_ms.parse().ok()?);
    Some(format!("no lock is granted or extended for another {left} ({reason})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarantine_is_shown_with_its_end_and_its_reason() {
        let info = |active| {
            format!(
                "# Persistence\r\nquarantine_active:{active}\r\nquarantine_left_ms:4182\r\nquarantine_reason:another boot\r\n"
            )
        };
        let text = "no lock is granted or extended for another 4.1 s (another boot)";
        assert_eq!(quarantine(&info(1)).as_deref(), Some(text));
        assert_eq!(quarantine(&info(0)), None);
        assert_eq!(quarantine("# Persistence\r\nloading:0\r\n"), None);
    }

    #[test]
    fn a_server_that_is_busy_or_refuses_the_login_is_alive_and_one_that_loads_is_not() {
        for (answer, expected) in [
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", true),
            ("MISCONF Redis is configured to save RDB snapshots", true),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOAUTH Authentication required.", true),
            ("WRONGPASS invalid username-password pair or user is disabled.", true),
            ("BUSYKEY", false),
            ("ERR max number of clients reached", true),
            ("ERR max number of clients", false),
            ("", false),
        ] {
            assert_eq!(is_alive(answer), expected, "{answer}");
        }
    }
}
