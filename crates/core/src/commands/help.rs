//! HELP of every container, derived from its row.

use redlatch_proto::error::Refusal;

use crate::commands::row::{Flags, Group, Row, usage};
use crate::commands::{Call, Command, Outcome};

/// The row of a HELP subcommand. Most came with Redis 5.
pub const fn row(group: Group) -> Row {
    Row::new(group, "HELP", "5.0.0", help)
        .summary("Lists the subcommands and what they do.")
        .flags(Flags::LOADING.with(Flags::STALE))
}

pub(super) fn help(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let container = call.command.name.split('|').next().unwrap_or_default();
    let subcommands =
        call.shared.commands.find(container.as_bytes()).map_or(&[][..], |found| &found.subcommands);
    let mut lines = vec![format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.to_ascii_uppercase()
    )];
    lines.extend(subcommands.iter().flat_map(about));
    call.reply.array(lines.len());
    for line in lines {
        call.reply.status_bytes(line.as_bytes());
    }
    Ok(Outcome::Replied)
}

fn about(subcommand: &Command) -> [String; 2] {
    [
        format!("{}{}", subcommand.row.name, usage(subcommand.row.args)),
        format!("    {}", subcommand.row.summary),
    ]
}
