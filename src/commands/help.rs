//! HELP of every command with subcommands: derived from its row.

use crate::commands::row::{Arg, Flags, Group, Kind, Row};
use crate::commands::{Call, Command, Outcome, table};
use crate::error::Refusal;

/// The row of a HELP subcommand, as old as most of them are.
pub(super) const fn row(group: Group) -> Row {
    Row {
        name: "HELP",
        summary: "Lists the subcommands and what they do.",
        since: "5.0.0",
        group,
        flags: Flags::LOADING.with(Flags::STALE),
        args: &[],
        subcommands: &[],
        run: help,
    }
}

fn help(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let container = call.command.name.split('|').next().unwrap_or_default();
    let subcommands = table().find(container.as_bytes()).map_or(&[][..], |found| &found.subcommands);
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

/// The arguments as documents write them, each with a space before it: ` <key> [EX <seconds> | KEEPTTL]`.
pub(super) fn usage(args: &[Arg]) -> String {
    args.iter().map(|arg| format!(" {}", one(arg))).collect()
}

fn one(arg: &Arg) -> String {
    let value = match arg.kind {
        Kind::Token => String::new(),
        Kind::OneOf(args) => args.iter().map(one).collect::<Vec<_>>().join(" | "),
        Kind::Block(args) => usage(args).trim_start().to_owned(),
        _ => format!("<{}>", arg.name),
    };
    let value = match arg.token {
        Some(token) if value.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {value}"),
        None => value,
    };
    match (arg.is_optional, arg.is_multiple) {
        (true, true) => format!("[{value} ...]"),
        (true, false) => format!("[{value}]"),
        (false, true) => format!("{value} [{value} ...]"),
        (false, false) if matches!(arg.kind, Kind::OneOf(_)) => format!("<{value}>"),
        (false, false) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::row::{integer, key, one_of, token};

    #[test]
    fn arguments_are_written_as_documents_write_them() {
        const LEASE: Arg = one_of("lease", &[integer("seconds").after("EX"), token("keepttl", "KEEPTTL")]);
        let args = [key("key").many(), LEASE.maybe(), token("now", "NOW").maybe()];
        assert_eq!(usage(&args), " <key> [<key> ...] [EX <seconds> | KEEPTTL] [NOW]");
    }
}
