//! `redlatch timeline`: the history of a server with test commands, as text or as a page.

use bytes::Bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use redlatch_client::Error;
use redlatch_client::wire::{Connection, Reply, connect, is_unknown};
use redlatch_testing::{Event, Extent, Field, Timeline, check};

use crate::common::exit::{self, Failure};
use crate::common::{Fault, ServerAddress, Subcommand, Task, print, task, with_trust};

pub(super) const TIMELINE: Subcommand = Subcommand::new(
    "timeline",
    "Draws the lock commands of all clients over time, in a lane for each client.",
    arguments,
    read,
);

/// How the picture is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Html,
    Text,
}

fn arguments(command: Command) -> Command {
    let format = PossibleValuesParser::new(["text", "html"]).map(|name| match name.as_str() {
        "html" => Format::Html,
        _ => Format::Text,
    });
    let timeline = command
        .arg(
            Arg::new("url")
                .required(true)
                .value_name("URL")
                .help("URL of a server with --enable-test-commands."),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(format)
                .default_value("text")
                .help("Format of the picture."),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("All steps, not only the last screen of them. [env: REDLATCH_TIMELINE=all]"),
        );
    with_trust(timeline)
}

/// What the arguments ask for.
fn read(matches: &ArgMatches) -> Result<Task, Fault> {
    let format = *matches.get_one("format").expect("an argument with a default");
    let wanted = std::env::var(Extent::VARIABLE).ok();
    let extent = if matches.get_flag("all") { Extent::All } else { Extent::of(wanted.as_deref()) };
    let server = ServerAddress::read(matches);
    Ok(task(move || show(server, format, extent)))
}

/// Prints the picture, as much of it as `extent` says if it is text; returns the exit code.
fn show(server: ServerAddress, format: Format, extent: Extent) -> u8 {
    exit::run(async {
        let events = events(server).await?;
        let (timeline, findings) = (Timeline::of(&events), check(&events));
        let text = match format {
            Format::Html => timeline.html(&findings),
            Format::Text => {
                let found =
                    findings.iter().map(|finding| format!("{:>17}  {}\n", finding.rule.name(), finding.text));
                let found: String = found.collect();
                let head = if found.is_empty() { "" } else { "\nTEST.CHECK finds:\n" };
                format!("{}{head}{found}", timeline.text(extent))
            }
        };
        print(text.as_bytes())?;
        Ok(0)
    })
}

/// The history of a server, oldest event first.
async fn events(server: ServerAddress) -> Result<Vec<Event>, Failure> {
    let (target, trust) = server.find().map_err(Failure::misused)?;
    let mut connection = connect(&target, &trust).await?;
    let (mut events, count) = (Vec::<Event>::new(), EVENTS_PER_REQUEST.to_string());
    loop {
        let since = events.last().map_or(0, |event| event.id).to_string();
        let reply = ask(&mut connection, &["TEST.HISTORY", "SINCE", &since, "COUNT", &count]).await?;
        let items = reply.items();
        for item in items {
            let event = Event::of_fields(|name| field(item.field(name)?));
            events.push(event.ok_or_else(|| Failure::no_server("the server sends no events"))?);
        }
        if items.len() < EVENTS_PER_REQUEST {
            return Ok(events);
        }
    }
}

async fn ask(connection: &mut Connection, words: &[&str]) -> Result<Reply, Failure> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match connection.ask(&words).await? {
        Reply::Error(text) if is_unknown(&text) => {
            let hint = "the server has no TEST commands: start it with --enable-test-commands yes";
            Err(Failure::misused(hint))
        }
        Reply::Error(text) => Err(Error::Refused(text).into()),
        reply => Ok(reply),
    }
}

fn field(reply: &Reply) -> Option<Field> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).ok().map(Field::Number),
        Reply::Text(text) => Some(Field::Text(Bytes::copy_from_slice(text))),
        Reply::List(items) => {
            let texts = items.iter().map(|item| item.text().map(Bytes::copy_from_slice));
            texts.collect::<Option<_>>().map(Field::List)
        }
        _ => None,
    }
}

/// Events that one request asks for.
const EVENTS_PER_REQUEST: usize = 1000;
