//! The arguments of a tool call, read by the rows of its table.
//!
//! Rule    a fault names the argument: a model reads it and calls again.

use std::time::Duration;

use redlatch_proto::lock::KEYS_MAX;
use redlatch_proto::options::{Given, Options, ROWS, Row, Takes};
use rmcp::model::JsonObject;
use serde_json::Value;

use super::tools::{Argument, Kind, Tool};
use crate::common::{Fault, duration};

/// The arguments of a call, whose names and types are those of the tool.
#[derive(Debug)]
pub(super) struct Arguments(JsonObject);

impl Arguments {
    /// Checks what a client has sent.
    ///
    /// # Errors
    /// A name that the tool does not know, a type that the argument does not have, or one that is missing.
    pub(super) fn read(tool: &Tool, sent: Option<JsonObject>) -> Result<Self, Fault> {
        let mut sent = sent.unwrap_or_default();
        // Models write null for what they leave out.
        sent.retain(|_, value| !value.is_null());
        let known = |name: &str| tool.arguments().any(|argument| argument.name == name);
        if let Some(name) = sent.keys().find(|name| !known(name)) {
            let names: Vec<&str> = tool.arguments().map(|argument| argument.name).collect();
            return Err(format!("unknown argument '{name}': {} has {}", tool.name, names.join(", ")));
        }
        for argument in tool.arguments() {
            match sent.get(argument.name) {
                Some(value) => {
                    argument.check(value).map_err(|fault| format!("{}: {fault}", argument.name))?
                }
                None if argument.is_required => return Err(format!("{}: is missing", argument.name)),
                None => {}
            }
        }
        Ok(Self(sent))
    }

    /// The options that all faces have.
    ///
    /// # Errors
    /// Two exclude each other, or META is too long.
    pub(super) fn options(&self) -> Result<Options, Fault> {
        let mut given = Given::default();
        for Row { name, takes, .. } in ROWS {
            match takes {
                Takes::Fields(note) => note(&mut given, self.fields(name)),
                Takes::Flag(note) => note(&mut given, self.flag(name)),
                Takes::Number(_, _, note) => note(&mut given, self.number(name)),
                Takes::Text(note) => note(&mut given, self.text(name).map(str::to_owned)),
            }
        }
        given.options(str::to_owned)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        let texts = self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(Value::as_str).collect()
    }

    /// A time, or its default.
    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        duration::read(self.text(name)?).ok()
    }

    fn fields(&self, name: &str) -> Vec<(String, String)> {
        let fields = self.0.get(name).and_then(Value::as_object).into_iter().flatten();
        fields.filter_map(|(field, value)| Some((field.clone(), value.as_str()?.to_owned()))).collect()
    }
}

impl Argument {
    fn check(&self, value: &Value) -> Result<(), Fault> {
        let is_right = match self.kind {
            Kind::Fields => value.as_object().is_some_and(|fields| fields.values().all(Value::is_string)),
            Kind::Flag => value.is_boolean(),
            Kind::Number(least, most) => {
                value.as_u64().is_some_and(|number| (least..=most).contains(&number))
            }
            Kind::Text => is_text(value),
            Kind::Texts => value
                .as_array()
                .is_some_and(|texts| (1..=KEYS_MAX).contains(&texts.len()) && texts.iter().all(is_text)),
            Kind::Time => return duration::read(value.as_str().unwrap_or_default()).map(drop),
        };
        let expected = match self.kind {
            Kind::Fields => "must be an object of texts",
            Kind::Flag => "must be true or false",
            Kind::Number(least, most) => &format!("must be a whole number from {least} to {most}"),
            Kind::Text => "must be a text that is not empty",
            Kind::Texts => &format!("must be a list of 1 to {KEYS_MAX} texts that are not empty"),
            Kind::Time => duration::EXPECTED,
        };
        if is_right { Ok(()) } else { Err(expected.to_owned()) }
    }
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tools;
    use super::*;

    fn read(tool: &str, sent: Value) -> Result<Arguments, Fault> {
        Arguments::read(tools::find(tool).expect("a tool"), sent.as_object().cloned())
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (sent, expected) in [
            (json!({ "one_of": [] }), "one_of: must be a list of 1 to 1000 texts"),
            (json!({ "one_of": ["a", ""] }), "one_of: must be a list"),
            (json!({ "one_of": vec!["a"; 1_001] }), "one_of: must be a list"),
            (json!({ "one_of": "a" }), "one_of: must be a list"),
            (json!({ "key": "" }), "key: must be a text"),
            (json!({ "key": 7 }), "key: must be a text"),
            (json!({ "key": ["a"] }), "key: must be a text"),
            (json!({ "key": "a", "lease": "-5s" }), "lease: must be a time"),
            (json!({ "key": "a", "lease": 600 }), "lease: must be a time"),
            (json!({ "key": "a", "wait": "" }), "wait: must be a time"),
            (json!({ "key": "a", "shared": "yes" }), "shared: must be true or false"),
            (json!({ "key": "a", "permits": 0 }), "permits: must be a whole number"),
            (
                json!({ "key": "a", "permits": 1, "of": 1_u64 << 31 }),
                "of: must be a whole number from 1 to 2147483647",
            ),
            (json!({ "key": "a", "permits": -1, "of": 2 }), "permits: must be a whole number"),
            (json!({ "key": "a", "of": 1.5 }), "of: must be a whole number"),
            (json!({ "key": "a", "meta": { "n": 1 } }), "meta: must be an object"),
            (json!({ "key": "a", "lock": "b" }), "unknown argument 'lock': take has key, one_of, lease"),
        ] {
            let fault = read("take", sent.clone()).expect_err("a fault");
            assert!(fault.starts_with(expected), "{sent}: {fault}");
        }
    }

    #[test]
    fn what_is_right_is_read_and_null_is_left_out() {
        let sent =
            json!({ "key": "a", "lease": "2m", "why": null, "meta": { "ci": "7" }, "permits": 2, "of": 3 });
        let read = read("take", sent).expect("arguments");
        assert_eq!((read.text("key"), read.text("why")), (Some("a"), None));
        assert_eq!((read.time("lease"), read.time("wait")), (Some(Duration::from_secs(120)), None));
        assert_eq!(
            (read.number("permits"), read.number("of"), read.flag("shared")),
            (Some(2), Some(3), false)
        );
        assert_eq!(read.fields("meta"), [("ci".to_owned(), "7".to_owned())]);
    }
}
