//! The tools, each a row: what a model reads of it, its arguments, the schema of its answers.

use std::sync::Arc;

use rmcp::model::{self, JsonObject, ToolAnnotations};
use serde_json::{Value, json};

/// What a tool does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
    Explain,
    List,
    Release,
    Renew,
    Take,
    Wait,
    Who,
}

#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    title: &'static str,
    about: &'static str,
    pub(super) arguments: &'static [Argument],
    /// The fields of an answer that are always there, and those that may be.
    answer: fn() -> [Value; 2],
    changes_locks: bool,
    pub(super) call: Call,
}

#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) is_required: bool,
    help: &'static str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Names with texts.
    Fields,
    Flag,
    /// A whole number from 1 on.
    Number,
    Text,
    /// A time with its unit, as a text.
    Time,
}

/// The tool of that name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The names of all tools, with commas.
pub(super) fn names() -> String {
    TOOLS.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", ")
}

/// All tools, as a client lists them.
pub(super) fn list() -> Vec<model::Tool> {
    TOOLS.iter().map(Tool::listed).collect()
}

impl Tool {
    fn listed(&self) -> model::Tool {
        let required: Vec<&str> = self
            .arguments
            .iter()
            .filter(|argument| argument.is_required)
            .map(|argument| argument.name)
            .collect();
        let properties: JsonObject =
            self.arguments.iter().map(|argument| (argument.name.to_owned(), argument.schema())).collect();
        let mut input = object(properties, required);
        input.insert("additionalProperties".to_owned(), false.into());
        let [always, sometimes] =
            (self.answer)().map(|fields| fields.as_object().cloned().unwrap_or_default());
        let required: Vec<&str> = always.keys().map(String::as_str).collect();
        let notices = (
            "notices".to_owned(),
            json!({ "type": "array", "items": { "type": "string" }, "description": NOTICES }),
        );
        let fields = always.clone().into_iter().chain(sometimes).chain([notices]).collect();
        let output = object(fields, required);
        let annotations = ToolAnnotations::with_title(self.title)
            .read_only(!self.changes_locks)
            .destructive(false)
            .idempotent(true)
            .open_world(false);
        model::Tool::new(self.name, self.about, Arc::new(input))
            .with_title(self.title)
            .with_raw_output_schema(Arc::new(output))
            .with_annotations(annotations)
    }
}

impl Argument {
    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Fields => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Number => json!({ "type": "integer", "minimum": 1 }),
            Kind::Text => json!({ "type": "string", "minLength": 1 }),
            Kind::Time => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)?$" }),
        };
        schema["description"] = self.help.into();
        schema
    }
}

fn object(properties: JsonObject, required: Vec<&str>) -> JsonObject {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    schema.as_object().cloned().unwrap_or_default()
}

const fn must(name: &'static str, kind: Kind, help: &'static str) -> Argument {
    Argument { name, kind, is_required: true, help }
}

const fn may(name: &'static str, kind: Kind, help: &'static str) -> Argument {
    Argument { name, kind, is_required: false, help }
}

const KEY: Argument = must("key", Kind::Text, "The name of the lock, such as db:migrations.");
const AGENT: Argument = may(
    "agent",
    Kind::Text,
    "Your own name, if several agents share this connection: each has locks of its own then. Always use the same one.",
);
const TOKEN: Argument = may("token", Kind::Number, "Only the hold with this token, not a later one.");

const TOOLS: &[Tool] = &[
    Tool {
        name: "take",
        title: "Take a lock",
        about: "Takes a lock before you touch what it protects, such as a database, a file or a release. While you hold it, no \
                other agent gets it. The lock ends with its lease: renew it before each further step, and release it when \
                you are done. If somebody else holds it, the answer says who, why and until when: do not go on without the lock. Do \
                something else, or call again with wait.",
        arguments: &[
            KEY,
            may(
                "lease",
                Kind::Time,
                "How long the lock lasts if it is not renewed, such as 30s, 10m or 1h. Default: 10m.",
            ),
            may(
                "wait",
                Kind::Time,
                "How long to wait in the queue of a lock that is held. Default: not at all.",
            ),
            may("why", Kind::Text, "What you are about to do: others see it while you hold the lock."),
            may("meta", Kind::Fields, "Further fields that others see, as texts."),
            may("shared", Kind::Flag, "Shares the lock with other readers."),
            may("permits", Kind::Number, "Takes so many permits of a semaphore. Needs of."),
            may("of", Kind::Number, "How many permits the semaphore has."),
            AGENT,
        ],
        answer: || {
            [
                step("taken"),
                json!({
                    "token": or_null("integer", "The fencing token: a later holder has a higher one."),
                    "lease": or_null("integer", "The lease, in milliseconds."),
                    "until": or_null("integer", "When the lease ends, as Unix time in milliseconds."),
                    "held": or_null("object", "Who holds the lock, if it is not taken."),
                }),
            ]
        },
        changes_locks: true,
        call: Call::Take,
    },
    Tool {
        name: "renew",
        title: "Renew a lock",
        about: "Begins the lease of a lock anew that you hold. Call it before each further step. If it fails, you have lost the \
                lock: stop, and look at what others have changed.",
        arguments: &[
            KEY,
            may("lease", Kind::Time, "The new length of the lease. Default: that which the lock has."),
            TOKEN,
            AGENT,
        ],
        answer: || {
            [
                step("renewed"),
                json!({
                    "token": or_null("integer", "The fencing token."),
                    "lease": or_null("integer", "The lease, in milliseconds."),
                    "until": or_null("integer", "When the lease ends, as Unix time in milliseconds."),
                    "explained": texts("What the server knows of the lock, if it is lost."),
                }),
            ]
        },
        changes_locks: true,
        call: Call::Renew,
    },
    Tool {
        name: "release",
        title: "Release a lock",
        about: "Gives a lock back that you hold. If it fails, you have lost the lock before: others may have changed what it protects.",
        arguments: &[KEY, TOKEN, AGENT],
        answer: || {
            [
                step("released"),
                json!({ "explained": texts("What the server knows of the lock, if it is lost.") }),
            ]
        },
        changes_locks: true,
        call: Call::Release,
    },
    Tool {
        name: "list",
        title: "List locks",
        about: "Lists the locks that are held, at most 100.",
        arguments: &[
            may("pattern", Kind::Text, "Only keys that match, such as db:*. Default: all."),
            may("mine", Kind::Flag, "Only those that you hold. Excludes pattern."),
            AGENT,
        ],
        answer: || {
            [
                json!({
                    "locks": { "type": "array", "items": { "type": "object" }, "description": "The locks, with the fields of LOCK.WHO." },
                    "more": { "type": "integer", "description": "How many further locks there are." },
                    "whole": { "type": "boolean", "description": "Whether all nodes of a cluster have answered." },
                }),
                json!({}),
            ]
        },
        changes_locks: false,
        call: Call::List,
    },
    Tool {
        name: "who",
        title: "Ask who holds a lock",
        about: "Says who holds a lock, why, since when and until when, and who waits for it.",
        arguments: &[KEY],
        answer: || {
            [
                json!({
                    "key": { "type": "string" },
                    "free": { "type": "boolean", "description": "Whether nobody holds it." },
                    "held": or_null("object", "The lock, with the fields of LOCK.WHO."),
                    "queue": { "type": "array", "items": { "type": "object" }, "description": "Who waits, first come first, at most 100." },
                }),
                json!({}),
            ]
        },
        changes_locks: false,
        call: Call::Who,
    },
    Tool {
        name: "wait",
        title: "Wait until a lock is free",
        about: "Returns when nobody holds the lock, and takes nothing: another agent may be faster. To get the lock, call take with \
                wait.",
        arguments: &[KEY, may("timeout", Kind::Time, "How long to wait. Default: 30s.")],
        answer: || {
            [
                json!({
                    "key": { "type": "string" },
                    "free": { "type": "boolean", "description": "Whether nobody holds it." },
                    "held": or_null("object", "Who holds it, with the fields of LOCK.WHO."),
                }),
                json!({}),
            ]
        },
        changes_locks: false,
        call: Call::Wait,
    },
    Tool {
        name: "explain",
        title: "Explain a lock",
        about: "Says in sentences what has happened to a lock: who holds it, who waits, how earlier holds have ended.",
        arguments: &[KEY, AGENT],
        answer: || {
            [
                json!({ "key": { "type": "string" }, "sentences": texts("What has happened, the latest first.") }),
                json!({}),
            ]
        },
        changes_locks: false,
        call: Call::Explain,
    },
];

/// The fields of an answer that says what has come of a request.
fn step(what: &str) -> Value {
    json!({
        what: { "type": "boolean" },
        "key": { "type": "string" },
        "owner": { "type": "string", "description": "The name under which this agent takes locks." },
    })
}

fn or_null(kind: &str, about: &str) -> Value {
    json!({ "type": [kind, "null"], "description": about })
}

fn texts(about: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": about })
}

const NOTICES: &str = "What has happened to locks of this connection since the last answer.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_says_what_it_does_and_what_each_argument_means() {
        for tool in list() {
            assert!(tool.description.is_some_and(|about| about.ends_with('.')), "{}", tool.name);
            let properties = tool.input_schema["properties"].as_object().expect("properties");
            for (name, schema) in properties {
                let help = schema["description"].as_str().expect("a description");
                assert!(help.ends_with('.'), "{} {name}: {help}", tool.name);
            }
            let output = tool.output_schema.expect("a schema of the answer");
            for name in output["required"].as_array().expect("names") {
                assert!(
                    output["properties"].get(name.as_str().expect("a name")).is_some(),
                    "{} {name}",
                    tool.name
                );
            }
        }
    }
}
