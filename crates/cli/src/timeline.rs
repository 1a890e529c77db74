//! `redlatch timeline`: a history as a picture.

use redlatch_core::testing::{Extent, Timeline, check};

use super::history::Source;
use super::{exit, print};

/// What `redlatch timeline` was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) source: Source,
    pub(super) format: Format,
    /// How much of it the text has.
    pub(super) extent: Extent,
}

/// How the picture is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Html,
    Json,
    Text,
}

/// Prints the picture; returns the exit code.
pub(super) fn show(options: Options) -> u8 {
    exit::run(async {
        let events = options.source.read().await?;
        let (timeline, findings) = (Timeline::of(&events), check(&events));
        let text = match options.format {
            Format::Html => timeline.html(&findings),
            Format::Json => timeline.json(&findings),
            Format::Text => {
                let found =
                    findings.iter().map(|finding| format!("{:>17}  {}\n", finding.rule.name(), finding.text));
                let found: String = found.collect();
                let head = if found.is_empty() { "" } else { "\nTEST.CHECK finds:\n" };
                format!("{}{head}{found}", timeline.text(options.extent))
            }
        };
        print(text.as_bytes())?;
        Ok(0)
    })
}
