//! `redlatch health`: whether a server is alive, for container health checks.
//!
//! Rule    a server that answers BUSY is alive. It runs a script, and a restart would lose every lock.

use std::time::Duration;

use super::Fault;
use super::place::Place;
use crate::client::{Error, Reply, Target, Trust, at, open};

/// How long a server may take for each step: to be connected to, to answer a request.
const STEP_MAX: Duration = Duration::from_secs(2);

/// Asks the server for a PONG. Returns the text to print for a healthy server: empty if it answers PONG.
///
/// # Errors
/// The server cannot be reached or trusted, takes more than [`STEP_MAX`] for a step, or gives an answer that does not
/// show a working server.
pub(super) fn check(place: Place) -> Result<String, Fault> {
    let (target, trust) = place.find()?;
    let address = &target.address;
    let answer = super::runtime()?.block_on(ask_for_pong(&target, &trust));
    match answer {
        Ok(reply) if reply.is("PONG") => Ok(String::new()),
        Ok(reply) => Err(format!("{address} answers '{reply:?}'")),
        Err(Error::Refused(text)) if is_alive(&text) => Ok(format!("{address} is alive: '-{text}'\n")),
        Err(Error::Refused(text)) => Err(format!("{address} answers '-{text}'")),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether an error reply shows a working server: a server that runs a long script, or a Redis that cannot save.
/// LOADING does not, because locks cannot be taken yet.
fn is_alive(answer: &str) -> bool {
    matches!(answer.split(' ').next(), Some("BUSY" | "MISCONF"))
}

/// Asks without HELLO, which an older server may not know.
async fn ask_for_pong(target: &Target, trust: &Trust) -> Result<Reply, Error> {
    let mut connection = open(target, trust, STEP_MAX).await?;
    connection.authenticate(target).await.map_err(|error| at(target, error))?;
    connection.call(&[b"PING"]).await.map_err(|error| at(target, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_is_alive_and_one_that_refuses_the_login_is_not() {
        for (answer, expected) in [
            ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", true),
            ("MISCONF Redis is configured to save RDB snapshots", true),
            ("LOADING Redis is loading the dataset in memory", false),
            ("NOAUTH Authentication required.", false),
            ("WRONGPASS invalid username-password pair or user is disabled.", false),
            ("BUSYKEY", false),
            ("", false),
        ] {
            assert_eq!(is_alive(answer), expected, "{answer}");
        }
    }
}
