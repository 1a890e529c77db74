//! The options of a lock that all faces offer alike, from `redlatch_proto::options`: their table in `docs/`, their fields in
//! openapi.json. CONTRIBUTING.md lists the files that a new one touches.

use redlatch_proto::options::Takes::{Fields, Flag, Number, Text};
use redlatch_proto::options::{ROWS, Row};

use super::read;

pub(super) const OPENAPI: &str = "docs/openapi.json";

/// `flag`: what a flag is given with.
pub(super) fn table(flag: &str) -> String {
    let row = |Row { name, takes, help }| {
        let value = match takes {
            Fields(_) => "names with texts",
            Flag(_) => flag,
            Number(least, most, _) => {
                &format!("a whole number, {least} to {}", super::promises::grouped(most))
            }
            Text(_) => "a text",
        };
        format!("| `{name}` | {value} | {help} |")
    };
    format!("| option | value | meaning |\n|---|---|---|\n{}", ROWS.map(row).join("\n"))
}

/// The description of the interface, with the options between two fields of a change.
pub(super) fn openapi() -> String {
    const BEFORE: &str = "\"description\": \"take: the longest wait.\"\n          },\n";
    const AFTER: &str = "          \"token\": {\n";
    let page = read(OPENAPI);
    let (head, rest) = page.split_once(BEFORE).expect("the wait");
    let (_, tail) = rest.split_once(AFTER).expect("the token");
    let field = |Row { name, takes, help }| {
        let schema = match takes {
            Fields(_) => r#""type": "object", "additionalProperties": {"type": "string"}"#,
            Flag(_) => r#""type": "boolean""#,
            Number(least, most, _) => &format!(r#""type": "integer", "minimum": {least}, "maximum": {most}"#),
            Text(_) => r#""type": "string""#,
        };
        format!("          {name:?}: {{{schema}, \"description\": \"take. {help}\"}},\n")
    };
    format!("{head}{BEFORE}{}{AFTER}{tail}", ROWS.map(field).concat())
}

#[test]
fn a_new_option_touches_at_most_fifteen_files_and_each_of_them_has_the_present_ones() {
    let page = read("CONTRIBUTING.md");
    let (_, section) = page.split_once("\n### An option of a lock\n").expect("the section");
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let files: Vec<&str> = names.filter(|name| name.contains('.') && !name.contains(' ')).collect();
    assert!((10..=15).contains(&files.len()), "{files:?}");
    for file in files {
        let text = read(file).to_lowercase();
        for option in ["shared", "permits", "meta"] {
            assert!(text.contains(option), "{file} has no {option}");
        }
    }
}
