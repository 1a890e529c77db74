//! docs/lock-commands.md: a section for each LOCK command, with the syntax that the table of commands has, and an example.
//! `transcripts` plays the examples.

use redlatch_core::commands::row::Group;
use redlatch_testing::commands::table;

use super::read;

pub(super) const PAGE: &str = "docs/lock-commands.md";

/// The page, with the syntax of each command in the line below its heading.
pub(super) fn page() -> String {
    let mut page = read(PAGE);
    let usages = usages();
    assert_eq!(page.matches("\n## LOCK.").count(), usages.len(), "{PAGE}: a section for each command");
    for usage in usages {
        let name = usage.split(['<', '[']).next().unwrap_or_default().trim_end();
        let heading = format!("\n## {name}\n\n");
        let parts = page.split_once(&heading).unwrap_or_else(|| panic!("{PAGE} has no section {name}"));
        let (before, (_, rest)) = (parts.0, parts.1.split_once('\n').unwrap_or_default());
        let section = rest.split("\n## ").next().unwrap_or_default();
        assert!(section.contains(&format!("> {name}")), "{PAGE}: {name} has no example");
        page = format!("{before}{heading}`{usage}`\n{rest}");
    }
    page
}

/// The syntax of each LOCK command. LOCK.SESSION HELP, which every container has, is left out.
fn usages() -> Vec<String> {
    let own = table().commands().iter().filter(|command| command.row.group == Group::Lock);
    let all = own.flat_map(|command| match command.subcommands.is_empty() {
        true => std::slice::from_ref(command),
        false => &command.subcommands[..],
    });
    all.filter(|command| command.row.name != "HELP").map(|command| command.usage()).collect()
}
