//! Replies of the engine as JSON.
//!
//! Rule    a map becomes an object with the same names. A text that is not UTF-8 is shown with escapes, and its exact bytes
//!         are beside it: `key_base64` belongs to `key`. An element of an array has no such neighbour.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::resp::received::Reply;

/// The value of a reply.
pub(super) fn value(reply: &Reply) -> Value {
    match reply {
        Reply::Error(text) => text.as_str().into(),
        Reply::Integer(number) => (*number).into(),
        Reply::List(items) | Reply::Push(items) => items.iter().map(value).collect(),
        Reply::Map(pairs) => {
            let mut object = Map::new();
            for (name, reply) in pairs {
                insert(&mut object, &shown(name.text().unwrap_or_default()), reply);
            }
            Value::Object(object)
        }
        Reply::Null => Value::Null,
        Reply::Text(bytes) => shown(bytes).into(),
    }
}

/// Adds a field, and its bytes if it is a text that is not UTF-8.
pub(super) fn insert(object: &mut Map<String, Value>, name: &str, reply: &Reply) {
    object.insert(name.to_owned(), value(reply));
    if let Some(bytes) = reply.text().filter(|bytes| std::str::from_utf8(bytes).is_err()) {
        object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into());
    }
}

/// A key or an owner as text.
fn shown(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), str::to_owned)
}

/// The bytes of a field of an object, which may be in its neighbour. `None` if there is none, or if it is no text.
pub(super) fn bytes_of(object: &Value, name: &str) -> Option<Vec<u8>> {
    match object.get(format!("{name}_base64")).and_then(Value::as_str) {
        Some(encoded) => STANDARD.decode(encoded).ok(),
        None => object.get(name)?.as_str().map(|text| text.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(bytes: &[u8]) -> Reply {
        Reply::Text(bytes.to_vec())
    }

    #[test]
    fn a_map_becomes_an_object_and_keeps_its_names() {
        let client =
            Reply::Map(vec![(text(b"lib-name"), text(b"redis-py")), (text(b"id"), Reply::Integer(7))]);
        let reply = Reply::Map(vec![
            (text(b"key"), text("schl\u{fc}ssel \"<script>\"\n".as_bytes())),
            (text(b"client"), client),
            (text(b"limit"), Reply::Null),
            (text(b"holders"), Reply::List(vec![Reply::Map(Vec::new())])),
        ]);
        let expected = json!({
            "key": "schl\u{fc}ssel \"<script>\"\n", "limit": null, "holders": [{}],
            "client": { "lib-name": "redis-py", "id": 7 },
        });
        assert_eq!(value(&reply), expected);
    }

    #[test]
    fn bytes_that_are_not_utf_8_come_back_exactly() {
        for bytes in
            [&b"lock:\xff\x00"[..], b"\xc3\x28", b"\xed\xa0\x80", b"", b"plain", "\u{1f512}".as_bytes()]
        {
            let object = value(&Reply::Map(vec![(text(b"key"), text(bytes))]));
            assert_eq!(bytes_of(&object, "key").as_deref(), Some(bytes), "{object}");
            assert_eq!(object.get("key_base64").is_some(), std::str::from_utf8(bytes).is_err());
        }
        let object = value(&Reply::Map(vec![(text(b"key"), text(b"lock:\xff\x00"))]));
        assert_eq!(object, json!({ "key": r"lock:\xff\x00", "key_base64": "bG9jazr/AA==" }));
    }

    #[test]
    fn what_is_no_text_has_no_bytes() {
        for object in
            [json!({}), json!({ "key": 7 }), json!({ "key_base64": "?" }), json!("key"), json!(null)]
        {
            assert_eq!(bytes_of(&object, "key"), None, "{object}");
        }
    }
}
