//! Replies of the engine as JSON.
//!
//! Rule    a map becomes an object with the same names. A text that is not UTF-8 is shown with escapes, and its exact bytes
//!         are beside it: `key_base64` belongs to `key`. An element of an array has no such neighbour.
//! Source  RESP3, as this server writes it: a reply with other elements is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use redlatch_proto::number;
use redlatch_proto::resp::Element;

/// Aggregates within aggregates at most; LOCK.LIST takes six.
const DEPTH_MAX: usize = 16;

/// The value of a whole reply; `None`: it is none.
pub(super) fn value(mut reply: &[u8]) -> Option<Value> {
    let value = take(&mut reply, DEPTH_MAX)?;
    reply.is_empty().then_some(value)
}

/// Takes the first value off the bytes, with at most `depth` aggregates within each other.
fn take(bytes: &mut &[u8], depth: usize) -> Option<Value> {
    Some(match Element::take(bytes)? {
        Element::Null(_) => Value::Null,
        Element::Line(b':', number) => number::integer(number)?.into(),
        // Text for people, after its format and a colon.
        Element::Bulk(b'=', text) => String::from_utf8_lossy(text.get(4..)?).into(),
        Element::Aggregate(b'*' | b'~', len) => {
            let depth = depth.checked_sub(1)?;
            Value::Array((0..len).map(|_| take(bytes, depth)).collect::<Option<_>>()?)
        }
        Element::Aggregate(b'%', len) => {
            let depth = depth.checked_sub(1)?;
            let mut object = Map::new();
            for _ in 0..len / 2 {
                let name = shown(text(Element::take(bytes)?)?);
                let mut rest = *bytes;
                match Element::take(&mut rest).and_then(text) {
                    Some(text) => {
                        *bytes = rest;
                        insert(&mut object, &name, text);
                    }
                    None => drop(object.insert(name, take(bytes, depth)?)),
                }
            }
            Value::Object(object)
        }
        element => shown(text(element)?).into(),
    })
}

/// The bytes of a text.
fn text(element: Element<'_>) -> Option<&[u8]> {
    match element {
        Element::Line(b'+' | b'-' | b',', text) | Element::Bulk(b'$', text) => Some(text),
        _ => None,
    }
}

/// Adds a text, and its bytes if they are not UTF-8.
pub(super) fn insert(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    object.insert(name.to_owned(), shown(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
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

    #[test]
    fn a_map_becomes_an_object_and_keeps_its_names() {
        let reply = b"%5\r\n$3\r\nkey\r\n$23\r\nschl\xc3\xbcssel \"<script>\"\r\n\r\n\
            +limit\r\n_\r\n+holders\r\n*2\r\n%0\r\n*0\r\n+client\r\n%2\r\n+lib-name\r\n$8\r\nredis-py\r\n+id\r\n:-7\r\n\
            +text\r\n=6\r\ntxt:a\n\r\n";
        let expected = json!({
            "key": "schl\u{fc}ssel \"<script>\"\r\n", "limit": null, "holders": [{}, []],
            "client": { "lib-name": "redis-py", "id": -7 }, "text": "a\n",
        });
        assert_eq!(value(reply), Some(expected));
    }

    #[test]
    fn bytes_that_are_not_utf_8_come_back_exactly() {
        for bytes in
            [&b"lock:\xff\x00"[..], b"\xc3\x28", b"\xed\xa0\x80", b"", b"plain\r\n", "\u{1f512}".as_bytes()]
        {
            let header = format!("%1\r\n+key\r\n${}\r\n", bytes.len());
            let object = value(&[header.as_bytes(), bytes, b"\r\n"].concat()).expect("a reply");
            assert_eq!(bytes_of(&object, "key").as_deref(), Some(bytes), "{object}");
            assert_eq!(object.get("key_base64").is_some(), std::str::from_utf8(bytes).is_err());
        }
        let object = value(b"%1\r\n+key\r\n$7\r\nlock:\xff\x00\r\n");
        assert_eq!(object, Some(json!({ "key": r"lock:\xff\x00", "key_base64": "bG9jazr/AA==" })));
    }

    #[test]
    fn what_is_no_reply_has_no_value() {
        let whole = b"*2\r\n%1\r\n+key\r\n$3\r\nabc\r\n:7\r\n";
        assert!(value(whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(value(&whole[..end]), None, "cut at {end}");
        }
        let nested = b"*1\r\n".repeat(DEPTH_MAX + 1);
        let others: [&[u8]; 8] = [
            b"+a\r\n+b\r\n", b"$5\r\nab\r\n", b":x\r\n", b"?\r\n", b"%1\r\n:1\r\n:2\r\n", b"=1\r\na\r\n",
            b"\r\n", &nested,
        ];
        for bytes in others {
            assert_eq!(value(bytes), None, "{}", bytes.escape_ascii());
        }
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
