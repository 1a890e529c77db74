//! Which requests may write: CLIENT PAUSE WRITE delays them.
//!
//! Source  Redis 7.0 `processCommand`: `is_may_replicate_command`, and `scriptFlagsToCmdFlags`.

use redlatch_proto::resp::Request;

use crate::commands::row::Flags;
use crate::commands::{Command, Shared};
use crate::scripts::header;

/// True if the request may write or Redis would replicate it.
///
/// The flags in a script's first line decide; without them, or if the script is unknown, its command decides.
#[cold]
pub(crate) fn may_write(shared: &Shared, command: &Command, request: Request<'_>) -> bool {
    let flags = command.row.flags;
    if !flags.has(Flags::SCRIPT) {
        return flags.has(Flags::WRITE.with(Flags::REPLICATED));
    }
    let script = request.get(1).unwrap_or_default();
    let declared = match command.row.name {
        "EVAL" | "EVAL_RO" => header(script).ok().and_then(|header| header.may_write()),
        "EVALSHA" | "EVALSHA_RO" => {
            shared.scripts.cache.find(script).and_then(|script| script.declared_writes())
        }
        _ => shared.scripts.libraries.function(script).map(|callable| !callable.function().only_reads()),
    };
    declared.unwrap_or(!flags.has(Flags::READONLY))
}
