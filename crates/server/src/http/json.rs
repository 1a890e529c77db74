//! Replies of the engine as JSON.
//!
//! Rule    a map becomes an object with the same names. A text that is not UTF-8 is shown with escapes, and its exact
//!         bytes are beside it: `key_base64` belongs to `key`. Beside a list of texts is a list of all of them,
//!         `held-by_base64`. Beside META, whose names are those of clients, is a list of fields and values, `meta_base64`.
//! Source  RESP3, as this server writes it: a reply with other elements is refused.

use std::{fmt, iter};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use redlatch_proto::log_name::{readable, text_or_escapes};
use redlatch_proto::number;
use redlatch_proto::resp::Element;

/// Aggregates within aggregates at most; LOCK.LIST takes six.
const DEPTH_MAX: usize = 16;

/// The value of a whole reply; `None`: it is none.
pub(super) fn value(mut reply: &[u8]) -> Option<Value> {
    let value = take(&mut reply, DEPTH_MAX)?;
    reply.is_empty().then_some(value)
}

/// The first elements of a reply that is a list, at most `count`, and none after these bytes; and how many there are.
/// `None`: it is no list.
pub(super) fn first(mut reply: &[u8], count: usize, bytes: usize) -> Option<(Vec<Value>, usize)> {
    let Element::Aggregate(b'*' | b'~', total) = Element::take(&mut reply)? else { return None };
    let (whole, mut items) = (reply.len(), Vec::new());
    while items.len() < total.min(count) && whole - reply.len() < bytes {
        items.push(take(&mut reply, DEPTH_MAX)?);
    }
    Some((items, total))
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
                let name = text_or_escapes(text(Element::take(bytes)?)?);
                take_field(bytes, &name, &mut object, depth)?;
            }
            Value::Object(object)
        }
        element => text_or_escapes(text(element)?).into(),
    })
}

/// Takes the value of a field off the bytes, and adds it to the object.
fn take_field(bytes: &mut &[u8], name: &str, object: &mut Map<String, Value>, depth: usize) -> Option<()> {
    let mut rest = *bytes;
    if let Some(text) = Element::take(&mut rest).and_then(text) {
        *bytes = rest;
        insert(object, name, text);
        return Some(());
    }
    let texts = texts(bytes);
    let mut value = take(bytes, depth)?;
    if let Some((is_map, texts)) = texts.filter(|(_, texts)| !texts.iter().copied().all(is_utf_8)) {
        let pairs = || texts.chunks_exact(2);
        if is_map {
            value = pairs().map(|pair| (text_or_escapes(pair[0]), text_or_escapes(pair[1]))).collect();
        }
        let exact = match is_map {
            true => pairs().map(encoded).collect(),
            false => encoded(&texts),
        };
        object.insert(format!("{name}_base64"), exact);
    }
    object.insert(name.to_owned(), value);
    Some(())
}

/// The texts of a list, or of a map and its names, if it has nothing else; and whether it is a map.
fn texts(mut bytes: &[u8]) -> Option<(bool, Vec<&[u8]>)> {
    let Element::Aggregate(kind @ (b'*' | b'%'), len) = Element::take(&mut bytes)? else { return None };
    let texts = (0..len).map(|_| Element::take(&mut bytes).and_then(text));
    Some((kind == b'%', texts.collect::<Option<_>>()?))
}

fn encoded(texts: &[&[u8]]) -> Value {
    texts.iter().map(|text| STANDARD.encode(text)).collect()
}

fn is_utf_8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
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
    object.insert(name.to_owned(), text_or_escapes(bytes).into());
    if !is_utf_8(bytes) {
        object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into());
    }
}

/// Reads JSON in which no object has a name twice. Of two values, `serde_json` by itself takes the last.
///
/// # Errors
/// It is no JSON; or a name is given twice.
pub(super) fn read(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Unique(value)| value)
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let items = iter::from_fn(|| items.next_element().transpose());
        items.map(|item| item.map(|Unique(item)| item)).collect()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("'{}' is given twice", readable(name.as_bytes()))));
            }
            let Unique(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

/// What is wrong with an object that has both a text and its bytes in base64.
///
/// # Errors
/// A sentence.
pub(super) fn check_once(object: &Value, name: &str) -> Result<(), String> {
    let encoded = format!("{name}_base64");
    let is_given = |name: &str| object.get(name).is_some_and(|value| !value.is_null());
    match is_given(name) && is_given(&encoded) {
        true => Err(format!("{name}: is given twice, also as {encoded}")),
        false => Ok(()),
    }
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
    fn meta_and_lists_that_are_not_utf_8_come_back_exactly() {
        let reply = b"%3\r\n+meta\r\n%2\r\n$2\r\na\xff\r\n$1\r\nb\r\n$8\r\na_base64\r\n$1\r\n\xfe\r\n\
            +held-by\r\n*2\r\n$1\r\n\xff\r\n$1\r\nb\r\n+plain\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        let expected = json!({
            "meta": { r"a\xff": "b", "a_base64": r"\xfe" },
            "meta_base64": [["Yf8=", "Yg=="], ["YV9iYXNlNjQ=", "/g=="]],
            "held-by": [r"\xff", "b"],
            "held-by_base64": ["/w==", "Yg=="],
            "plain": ["a", "b"],
        });
        assert_eq!(value(reply), Some(expected));
    }

    #[test]
    fn the_first_of_a_list_are_taken_and_all_are_counted() {
        let list = b"*3\r\n$1\r\na\r\n*1\r\n:7\r\n+c\r\n";
        let taken = |count, bytes| first(list, count, bytes).map(|(items, total)| (json!(items), total));
        assert_eq!(taken(9, 99), Some((json!(["a", [7], "c"]), 3)));
        assert_eq!(taken(2, 99), Some((json!(["a", [7]]), 3)));
        assert_eq!(taken(9, 8), Some((json!(["a", [7]]), 3)), "the second begins within eight bytes");
        assert_eq!(taken(9, 7), Some((json!(["a"]), 3)));
        assert_eq!((first(b"+a\r\n", 9, 99), first(&list[..12], 9, 99)), (None, None));
    }

    #[test]
    fn json_whose_names_differ_is_that_of_serde_and_a_name_twice_is_an_error() {
        for text in
            ["null", r#"{"a":{"b":[1,-2,1.5,true,null,"c\u0000"]},"A":1}"#, "[[],{}]", "18446744073709551615"]
        {
            assert_eq!(read(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"c":2,"\u0061":null}}]"#] {
            assert!(
                read(text.as_bytes()).unwrap_err().to_string().starts_with("'a' is given twice"),
                "{text}"
            );
        }
        assert!(read(&b"[".repeat(10_000)).is_err());
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
