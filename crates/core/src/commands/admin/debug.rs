//! DEBUG, as far as test suites need it. The setting `enable-debug-command` must allow it.
//!
//! Source  Redis 7.0 `debug.c`. As in Redis, COMMAND INFO does not list its subcommands.

use redlatch_proto::error::Refusal;
use redlatch_proto::number::double;

use crate::commands::row::{Flags, Group, Row, text};
use crate::commands::{Call, Outcome, Shared};
use crate::state::clients::Client;
use crate::state::settings;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Server, "DEBUG", "1.0.0", debug)
    .summary("Commands for tests: see DEBUG HELP. Needs the setting enable-debug-command.")
    .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::PROTECTED))
    .args(&[text("subcommand"), text("arg").maybe().many()])];

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ERROR <string>",
    "    Answers with an error of that text.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Whether expired keys are removed on time, or only when a command reads them.",
    "SLEEP <seconds>",
    "    Stops the server for so long; fractions count.",
    "HELP",
    "    Prints this help.",
];

fn debug(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.maybe_word();
    match (value, call.args.is_empty()) {
        (None, _) if name.eq_ignore_ascii_case(b"HELP") => help(call),
        (Some(value), true) if name.eq_ignore_ascii_case(b"ERROR") => error(value),
        (Some(value), true) if name.eq_ignore_ascii_case(b"SET-ACTIVE-EXPIRE") => {
            set_active_expire(call, value)
        }
        (Some(value), true) if name.eq_ignore_ascii_case(b"SLEEP") => sleep(call, value),
        _ => Err(unknown(name)),
    }
}

/// Checks whether DEBUG is allowed to this client.
///
/// # Errors
/// The setting forbids it, or allows it to local clients only.
#[cold]
pub(crate) fn check_protected(shared: &Shared, client: &Client) -> Result<(), Refusal> {
    let is_allowed = match shared.settings.get(settings::ENABLE_DEBUG_COMMAND).as_str() {
        "yes" => true,
        "local" => client.address.is_local(),
        _ => false,
    };
    if is_allowed {
        return Ok(());
    }
    Err(Refusal::said(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from \
         a local connection, otherwise you need to set this option in the configuration file, and then restart the \
         server.",
    ))
}

fn unknown(name: &[u8]) -> Refusal {
    Refusal::subcommand_syntax("DEBUG", name)
}

fn help(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.status(line));
    Ok(Outcome::Replied)
}

fn error(text: &[u8]) -> Result<Outcome, Refusal> {
    Err(Refusal::Quoted(text.to_vec()))
}

fn set_active_expire(call: &mut Call<'_, '_>, value: &[u8]) -> Result<Outcome, Refusal> {
    // Like C's atoi: a word that is not a number is zero.
    let is_on = redlatch_proto::number::integer(value).unwrap_or(0) != 0;

    call.shared.expires_actively.store(is_on, std::sync::atomic::Ordering::Relaxed);

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// The longest sleep, in seconds: a year.
const SLEEP_SECS_MAX: f64 = 365.0 * 86_400.0;

/// Delays all replies until the time is over, including this one. No thread sleeps.
fn sleep(call: &mut Call<'_, '_>, value: &[u8]) -> Result<Outcome, Refusal> {
    // Like C's strtod: a word that is not a number is zero.
    let secs = double::parse(value).unwrap_or(0.0).clamp(0.0, SLEEP_SECS_MAX);
    let micros = (secs * 1e6) as u64;
    if micros == 0 {
        call.reply.ok();
        return Ok(Outcome::Replied);
    }

    let until = call.now.lock + micros.div_ceil(1000);
    call.shared.pause.freeze(until);
    // The engine measures this call, which ends at once. The statistics get the time that clients wait.
    let request = call.args.request();
    call.shared.record_duration(call.view, &call.session.client, call.command, request, micros);

    let wait = call.session.new_wait(Some(until), b"+OK\r\n".to_vec());
    Ok(Outcome::Park { wait, waiter: None })
}
