//! ACL LOAD and ACL SAVE.
//!
//! Rule    executed on the script thread, because a disk may be slow.
//! Source  Redis 7.0 `acl.c`; sessions of users that the file still has stay, as in Redis 7.2 and Valkey.

use redlatch_proto::error::Refusal;

use crate::commands::admin::acl_sessions::{end_listeners, end_sessions};
use crate::commands::{Call, Outcome};

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the \
ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store \
users in the Redis configuration.";

pub(in crate::commands) fn load(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let shared = call.shared;
    if !shared.has_acl_file() {
        return Err(Refusal::said(NO_FILE));
    }

    let gone = shared.load_acl_file().map_err(|error| Refusal::Quoted([&b"ERR "[..], &error].concat()))?;
    let own = call.session.client.id;
    let mut is_own = end_sessions(shared, &gone, own);
    for account in shared.access.acl.all() {
        is_own |= end_listeners(shared, &account, own);
    }

    call.audit("acl-load", |_| {});
    call.reply.ok();
    Ok(if is_own { Outcome::Close } else { Outcome::Replied })
}

pub(in crate::commands) fn save(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if !call.shared.has_acl_file() {
        return Err(Refusal::said(NO_FILE));
    }

    if let Err(error) = call.shared.save_acl_file() {
        tracing::warn!(%error, "the ACL file was not written");
        return Err(Refusal::said(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        ));
    }
    call.audit("acl-save", |_| {});

    call.reply.ok();
    Ok(Outcome::Replied)
}
