//! The tools, each a row: what a model reads of it, its arguments, the fields of its answers.

use std::sync::Arc;

use redlatch_proto::lock::KEYS_MAX;
use redlatch_proto::options;
use rmcp::model::{self, JsonObject, ToolAnnotations};
use serde_json::{Value, json};

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
    /// Those of `take` are followed by the options that all faces have.
    arguments: &'static [Argument],
    answer: &'static [Field],
    changes_locks: bool,
    pub(super) call: Call,
}

#[derive(Clone, Copy, Debug)]
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
    /// A whole number, from the first to the second.
    Number(u64, u64),
    Text,
    /// Texts that are not empty: one at least, [`KEYS_MAX`] at most.
    Texts,
    /// A time with its unit, as a text.
    Time,
}

/// A field of an answer.
#[derive(Debug)]
struct Field {
    name: &'static str,
    shape: Shape,
    /// Whether each answer has it.
    is_certain: bool,
    help: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Flag,
    Number,
    /// A whole number, or null.
    NumberOrNone,
    /// An object, or null.
    ObjectOrNone,
    Objects,
    Text,
    Texts,
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
    pub(super) fn arguments(&self) -> impl Iterator<Item = Argument> {
        let options = options::ROWS.into_iter().filter(|_| self.call == Call::Take);
        self.arguments.iter().copied().chain(options.map(Argument::from))
    }

    fn listed(&self) -> model::Tool {
        let arguments = self.arguments().map(|argument| (argument.name, argument.schema()));
        let required = self.arguments().filter(|argument| argument.is_required);
        let mut input = object(arguments, required.map(|argument| argument.name));
        input.insert("additionalProperties".to_owned(), false.into());
        let fields = self.answer.iter().chain([&NOTICES]).map(|field| (field.name, field.schema()));
        let certain = self.answer.iter().filter(|field| field.is_certain);
        let output = object(fields, certain.map(|field| field.name));
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

impl From<options::Row> for Argument {
    fn from(row: options::Row) -> Self {
        let kind = match row.takes {
            options::Takes::Fields(_) => Kind::Fields,
            options::Takes::Flag(_) => Kind::Flag,
            options::Takes::Number(least, most, _) => Kind::Number(least, most),
            options::Takes::Text(_) => Kind::Text,
        };
        may(row.name, kind, row.help)
    }
}

impl Argument {
    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Fields => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Text => json!({ "type": "string", "minLength": 1 }),
            Kind::Texts => json!({
                "type": "array", "items": { "type": "string", "minLength": 1 }, "minItems": 1, "maxItems": KEYS_MAX,
            }),
            Kind::Time => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)?$" }),
        };
        schema["description"] = self.help.into();
        schema
    }
}

impl Field {
    fn schema(&self) -> Value {
        let mut schema = match self.shape {
            Shape::Flag => json!({ "type": "boolean" }),
            Shape::Number => json!({ "type": "integer" }),
            Shape::NumberOrNone => json!({ "type": ["integer", "null"] }),
            Shape::ObjectOrNone => json!({ "type": ["object", "null"] }),
            Shape::Objects => json!({ "type": "array", "items": { "type": "object" } }),
            Shape::Text => json!({ "type": "string" }),
            Shape::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        };
        schema["description"] = self.help.into();
        schema
    }
}

/// The schema of an object.
fn object<'n>(
    properties: impl Iterator<Item = (&'n str, Value)>,
    required: impl Iterator<Item = &'n str>,
) -> JsonObject {
    let properties: JsonObject = properties.map(|(name, schema)| (name.to_owned(), schema)).collect();
    let required: Vec<&str> = required.collect();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    schema.as_object().cloned().unwrap_or_default()
}

const fn must(name: &'static str, kind: Kind, help: &'static str) -> Argument {
    Argument { name, kind, is_required: true, help }
}

const fn may(name: &'static str, kind: Kind, help: &'static str) -> Argument {
    Argument { name, kind, is_required: false, help }
}

const fn always(name: &'static str, shape: Shape, help: &'static str) -> Field {
    Field { name, shape, is_certain: true, help }
}

const fn sometimes(name: &'static str, shape: Shape, help: &'static str) -> Field {
    Field { name, shape, is_certain: false, help }
}

const KEY: Argument = must("key", Kind::Text, "The name of the lock, such as db:migrations.");
const AGENT: Argument = may(
    "agent",
    Kind::Text,
    "Your own name, if several agents share this connection: each has locks of its own then. Always use \
     the same one.",
);
const TOKEN: Argument =
    may("token", Kind::Number(1, i64::MAX as u64), "Only the hold with this token, not a later one.");

const ITS_KEY: Field = always("key", Shape::Text, "The name of the lock.");
const OWNER: Field = always("owner", Shape::Text, "The name under which this agent takes locks.");
const ITS_TOKEN: Field =
    sometimes("token", Shape::NumberOrNone, "The fencing token: a later holder has a higher one.");
const LEASE: Field = sometimes("lease", Shape::NumberOrNone, "The lease, in milliseconds.");
const UNTIL: Field =
    sometimes("until", Shape::NumberOrNone, "When the lease ends, as Unix time in milliseconds.");
const EXPLAINED: Field =
    sometimes("explained", Shape::Texts, "What the server knows of the lock, if it is lost.");
const FREE: Field = always("free", Shape::Flag, "Whether nobody holds the lock.");
const HELD: Field = always("held", Shape::ObjectOrNone, "Who holds the lock, with the fields of LOCK.WHO.");
const NOTICES: Field =
    sometimes("notices", Shape::Texts, "What has happened to locks of this agent since the last answer.");

const TOOLS: &[Tool] = &[
    Tool {
        name: "take",
        title: "Take a lock",
        about: "Takes a lock before you touch what it protects, such as a database, a file or a release. \
                While you hold it, no other agent gets it. The lock ends with its lease: renew it before each \
                further step, and release it when you are done. If somebody else holds it, the answer says \
                who, why and until when: do not go on without the lock. Do something else, or call again \
                with wait.",
        arguments: &[
            Argument { is_required: false, ..KEY },
            may(
                "one_of",
                Kind::Texts,
                "Instead of key: the names of equal things, such as test accounts, one of which you need. The \
                 answer has the one that you got in key.",
            ),
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
            AGENT,
        ],
        answer: &[
            always("taken", Shape::Flag, "Whether this agent holds the lock now."),
            Field { is_certain: false, ..ITS_KEY },
            OWNER,
            ITS_TOKEN,
            LEASE,
            UNTIL,
            Field { is_certain: false, ..HELD },
        ],
        changes_locks: true,
        call: Call::Take,
    },
    Tool {
        name: "renew",
        title: "Renew a lock",
        about: "Begins the lease of a lock anew that you hold. Call it before each further step. If it \
                fails, you have lost the lock: stop, and look at what others have changed.",
        arguments: &[
            KEY,
            may("lease", Kind::Time, "The new length of the lease. Default: that which the lock has."),
            TOKEN,
            AGENT,
        ],
        answer: &[
            always("renewed", Shape::Flag, "Whether this agent still holds the lock."),
            ITS_KEY,
            OWNER,
            ITS_TOKEN,
            LEASE,
            UNTIL,
            EXPLAINED,
        ],
        changes_locks: true,
        call: Call::Renew,
    },
    Tool {
        name: "release",
        title: "Release a lock",
        about: "Gives a lock back that you hold. If it fails, you have lost the lock before: others may have \
                changed what it protects.",
        arguments: &[KEY, TOKEN, AGENT],
        answer: &[
            always("released", Shape::Flag, "Whether this agent held the lock until now."),
            ITS_KEY,
            OWNER,
            EXPLAINED,
        ],
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
        answer: &[
            always("locks", Shape::Objects, "The locks, with the fields of LOCK.WHO."),
            always("more", Shape::Number, "How many further locks there are."),
            always("whole", Shape::Flag, "Whether all nodes of a cluster have answered."),
        ],
        changes_locks: false,
        call: Call::List,
    },
    Tool {
        name: "who",
        title: "Ask who holds a lock",
        about: "Says who holds a lock, why, since when and until when, and who waits for it.",
        arguments: &[KEY],
        answer: &[
            ITS_KEY,
            FREE,
            HELD,
            always("queue", Shape::Objects, "Who waits, in the order of the queue, at most 100."),
        ],
        changes_locks: false,
        call: Call::Who,
    },
    Tool {
        name: "wait",
        title: "Wait until a lock is free",
        about: "Returns when nobody holds the lock, and takes nothing: another agent may be faster. To get \
                the lock, call take with wait.",
        arguments: &[KEY, may("timeout", Kind::Time, "How long to wait. Default: 30s.")],
        answer: &[ITS_KEY, FREE, HELD],
        changes_locks: false,
        call: Call::Wait,
    },
    Tool {
        name: "explain",
        title: "Explain a lock",
        about: "Says in sentences what has happened to a lock: who holds it, who waits, how earlier holds \
                have ended.",
        arguments: &[KEY, AGENT],
        answer: &[
            ITS_KEY,
            always("sentences", Shape::Texts, "How the lock stands, and what has happened to it."),
        ],
        changes_locks: false,
        call: Call::Explain,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_says_what_it_does_and_what_each_name_means() {
        for tool in list() {
            let about = tool.description.expect("what it does");
            assert!(about.ends_with('.') && !about.contains("  "), "{}: {about}", tool.name);
            for schema in [&*tool.input_schema, &*tool.output_schema.expect("a schema of its answers")] {
                let properties = schema["properties"].as_object().expect("properties");
                for (name, property) in properties {
                    let help = property["description"].as_str().expect("a description");
                    assert!(help.ends_with('.') && !help.contains("  "), "{} {name}: {help}", tool.name);
                }
                for name in schema["required"].as_array().expect("names") {
                    let name = name.as_str().expect("a name");
                    assert!(properties.contains_key(name), "{} {name}", tool.name);
                }
            }
        }
    }

    #[test]
    fn a_name_means_one_tool_and_one_argument() {
        for tool in TOOLS {
            assert_eq!(find(tool.name).expect("a tool").call, tool.call, "{}", tool.name);
            for argument in tool.arguments() {
                let same = tool.arguments().filter(|other| other.name == argument.name);
                assert_eq!(same.count(), 1, "{} {}", tool.name, argument.name);
            }
        }
    }
}
