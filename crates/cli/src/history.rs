//! The history that a subcommand reads: from a file of TEST.RECORD, or from a server with the test backend.

use std::fs::File;
use std::io::{BufRead, BufReader};

use bytes::Bytes;
use redlatch_client::Trust;
use redlatch_client::wire::{Connection, Reply, Target, connect};
use redlatch_core::testing::{Event, Field};
use serde_json::Value;

use super::Fault;
use super::exit::{Failure, NO_INPUT};
use super::place::Place;

#[derive(Debug)]
pub(super) enum Source {
    File(String),
    Server(Place),
}

impl Source {
    /// The source that a word names: a URL, or else a file.
    pub(super) fn of(word: &str, trust: Trust) -> Self {
        match word.contains("://") {
            true => Self::Server(Place { url: Some(word.to_owned()), trust }),
            false => Self::File(word.to_owned()),
        }
    }

    /// The events, oldest first.
    pub(super) async fn read(self) -> Result<Vec<Event>, Failure> {
        match self {
            Self::File(name) => of_file(&name).map_err(|fault| Failure(NO_INPUT, format!("{name}: {fault}"))),
            Self::Server(place) => {
                let (target, trust) = place.find().map_err(Failure::misused)?;
                of_server(&target, &trust).await
            }
        }
    }
}

fn of_file(name: &str) -> Result<Vec<Event>, Fault> {
    let file = File::open(name).map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| error.to_string())?;
        if !line.is_empty() {
            events.push(of_line(&line).ok_or_else(|| format!("line {number} is no event"))?);
        }
    }
    Ok(events)
}

fn of_line(line: &str) -> Option<Event> {
    let value: Value = serde_json::from_str(line).ok()?;
    Event::of_fields(|name| field_of(value.get(name)?))
}

fn field_of(value: &Value) -> Option<Field> {
    match value {
        Value::Number(number) => number.as_u64().map(Field::Number),
        Value::Array(items) => items.iter().map(bytes_of).collect::<Option<_>>().map(Field::List),
        value => bytes_of(value).map(Field::Text),
    }
}

/// A text, or bytes that are no UTF-8.
fn bytes_of(value: &Value) -> Option<Bytes> {
    if let Value::String(text) = value {
        return Some(Bytes::copy_from_slice(text.as_bytes()));
    }
    let digits = value.get("hex")?.as_str()?.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

async fn of_server(target: &Target, trust: &Trust) -> Result<Vec<Event>, Failure> {
    let mut connection = connect(target, trust).await?;
    let (mut events, count) = (Vec::<Event>::new(), EVENTS_PER_REQUEST.to_string());
    loop {
        let since = events.last().map_or(0, |event| event.id).to_string();
        let reply = asked(&mut connection, &["TEST.HISTORY", "SINCE", &since, "COUNT", &count]).await?;
        let items = reply.items();
        for item in items {
            let get = |name| field_of_reply(item.field(name)?);
            let event = Event::of_fields(get);
            events.push(event.ok_or_else(|| Failure::no_server("the server sends no events"))?);
        }
        if items.len() < EVENTS_PER_REQUEST {
            return Ok(events);
        }
    }
}

async fn asked(connection: &mut Connection, words: &[&str]) -> Result<Reply, Failure> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    match connection.ask(&words).await? {
        Reply::Error(text) if text.starts_with("ERR unknown command") => {
            let hint = "the server has no test backend; --enable-test-commands yes opens it";
            Err(Failure::no_server(hint))
        }
        Reply::Error(text) => Err(Failure::no_server(format!("the server refuses: {text}"))),
        reply => Ok(reply),
    }
}

fn field_of_reply(reply: &Reply) -> Option<Field> {
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

/// A reply as the history keeps it.
pub(super) fn reply_text(reply: &Reply) -> String {
    let list = |texts: Vec<String>| format!("[{}]", texts.join(", "));
    match reply {
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(number) => number.to_string(),
        Reply::List(items) | Reply::Push(items) => list(items.iter().map(reply_text).collect()),
        Reply::Map(pairs) => {
            list(pairs.iter().flat_map(|(field, value)| [reply_text(field), reply_text(value)]).collect())
        }
        Reply::Null => "nil".to_owned(),
        Reply::Text(text) => String::from_utf8_lossy(text).into_owned(),
    }
}

/// Events that one request asks for.
const EVENTS_PER_REQUEST: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use redlatch_core::testing::EventKind;

    #[test]
    fn an_event_reads_back_from_its_line() {
        let event = Event {
            id: 7,
            at: 12,
            args: vec![Bytes::from_static(b"a\"\n"), Bytes::from_static(b"\xff\0")],
            key: Some(Bytes::from_static(b"\xfe")),
            command: Some("SET".into()),
            ..Event::new(EventKind::Request)
        };
        assert_eq!(of_line(&event.json()), Some(event));
        assert_eq!(of_line("{\"id\":1}"), None);
        assert_eq!(of_line("nonsense"), None);
        assert_eq!(of_line(r#"{"id":1,"kind":"reply","at":2,"key":{"hex":"zz"}}"#).unwrap().key, None);
    }
}
