//! ACL LOG and ACL GENPASS.
//!
//! Source  Redis 7.0 `acl.c`; an entry's number and times as Redis 7.2 has them.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::{Call, Outcome};
use crate::state::acl::password::hex;

/// Default number of entries in the reply of ACL LOG.
const ENTRIES: usize = 10;
/// Default and maximum number of bits of ACL GENPASS.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

pub(in crate::commands) fn log(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let word = one_word(call)?;
    if word.is_some_and(|word| word.eq_ignore_ascii_case(b"RESET")) {
        call.shared.access.acl.log.reset();
        call.audit("reset", |line| line.text("of", b"ACL LOG"));
        call.reply.ok();
        return Ok(Outcome::Replied);
    }
    let count = match word {
        Some(word) => usize::try_from(number::integer(word).ok_or(Refusal::NotAnInteger)?).unwrap_or(0),
        None => ENTRIES,
    };

    let entries = call.shared.access.acl.log.newest(count);
    call.reply.array(entries.len());
    for entry in entries {
        call.reply.map(10);
        bulk(call, "count");
        call.reply.integer(i64::try_from(entry.count).unwrap_or(i64::MAX));
        for (name, value) in [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.context.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.username),
        ] {
            bulk(call, name);
            call.reply.bulk(value);
        }
        bulk(call, "age-seconds");
        call.reply.double(call.now.lock.millis_since(entry.updated) as f64 / 1000.0);
        bulk(call, "client-info");
        call.reply.bulk(entry.client.as_bytes());
        for (name, value) in [
            ("entry-id", entry.id),
            ("timestamp-created", entry.created_unix_ms),
            ("timestamp-last-updated", entry.updated_unix_ms),
        ] {
            bulk(call, name);
            call.reply.integer(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }
    Ok(Outcome::Replied)
}

fn bulk(call: &mut Call<'_, '_>, name: &str) {
    call.reply.bulk(name.as_bytes());
}

pub(in crate::commands) fn genpass(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let bits = one_word(call)?
        .map_or(Ok(PASSWORD_BITS), |word| number::integer(word).ok_or(Refusal::NotAnInteger))?;
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Refusal::said(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }

    let mut bytes = vec![0; (bits as usize).div_ceil(8)];
    call.shared.fill_secret(&mut bytes)?;
    // A hexadecimal digit has four bits.
    let digits = hex(&bytes);
    call.reply.bulk(&digits.as_bytes()[..(bits as usize).div_ceil(4)]);
    Ok(Outcome::Replied)
}

/// The optional argument of the subcommand.
fn one_word<'a>(call: &mut Call<'a, '_>) -> Result<Option<&'a [u8]>, Refusal> {
    let word = call.args.maybe_word();
    if call.args.is_empty() {
        return Ok(word);
    }
    Err(Refusal::subcommand_syntax("ACL", call.args.request().word(1)))
}
