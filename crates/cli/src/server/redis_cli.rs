//! `redis-cli`: what health checks and scripts use of it, if the program is started by that name.
//!
//! Rule    options, output and exit codes are those of redis-cli whose output is no terminal.
//! Source  redis-cli of Redis 7.0.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use redlatch_client::wire::{Reply, Target, open};
use redlatch_client::{Error, Trust};

use crate::common::{Fault, print, runtime, warn};

/// How long the server may take to be connected to, and to answer the login.
const STEP_MAX: Duration = Duration::from_secs(10);

/// Sends the request that the arguments name, and prints the reply. As in redis-cli, an error reply is no failure without
/// the option `-e`.
///
/// # Errors
/// The server cannot be reached, or an option is unknown.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
    let (target, words, is_strict) = read(words)?;
    let reply = runtime()?.block_on(ask(&target, &words));
    let mut text = match reply.map_err(|error| format!("Could not connect to Redis at {error}"))? {
        Reply::Error(text) if is_strict => return Err(text),
        Reply::Error(text) => format!("{text}\n").into_bytes(),
        reply => shown(&reply),
    };
    // INFO has the end of its last line.
    if !text.ends_with(b"\r\n") {
        text.push(b'\n');
    }
    print(&text).map(|_| ExitCode::SUCCESS)
}

/// The server, the words of the request, and whether an error reply is a failure.
fn read(words: impl Iterator<Item = String>) -> Result<(Target, Vec<String>, bool), Fault> {
    let (mut host, mut port, mut is_strict) = ("127.0.0.1".to_owned(), "6379".to_owned(), false);
    let mut target =
        Target { password: std::env::var("REDISCLI_AUTH").unwrap_or_default(), ..Target::default() };
    let mut words = words.peekable();
    while let Some(flag) = words.next_if(|word| word.starts_with('-')) {
        let value = match flag.as_str() {
            "-h" => &mut host,
            "-p" => &mut port,
            "-a" | "--pass" => &mut target.password,
            "--user" => &mut target.user,
            "--no-auth-warning" | "--raw" => continue,
            "-e" => {
                is_strict = true;
                continue;
            }
            _ => return Err(format!("Unrecognized option or bad number of args for: '{flag}'")),
        };
        *value = words.next().ok_or_else(|| format!("a value is missing for '{flag}'"))?;
    }
    if words.peek().is_none() {
        return Err("a request is missing: this redis-cli has no prompt".to_owned());
    }
    // The port of an IPv6 address follows its brackets.
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    target.address = format!("{host}:{port}");
    Ok((target, words.collect(), is_strict))
}

/// The reply to a request, after a login that may fail.
async fn ask(target: &Target, words: &[String]) -> Result<Reply, Error> {
    let mut connection = open(target, &Trust::default(), STEP_MAX).await?;
    if let Err(Error::Refused(text)) = connection.authenticate(target).await {
        warn(&format!("AUTH failed: {text}"));
    }
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    connection.ask_and_wait(&words).await
}

/// A reply as text. What is inside others is separated by line feeds.
fn shown(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Integer(number) => number.to_string().into_bytes(),
        Reply::Text(text) => text.clone(),
        Reply::Error(text) => text.clone().into_bytes(),
        Reply::List(items) => items.iter().map(shown).collect::<Vec<_>>().join(&b'\n'),
        Reply::Null | Reply::Map(_) | Reply::Push(_) => Vec::new(),
    }
}
