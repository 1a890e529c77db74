//! The library `cjson`: JSON text to and from Lua's values.
//!
//! Owns    its settings, which outlive the script that sets them, as they do in Redis.
//! Bounds  neither direction recurses; depth ends where Redis' stack would.
//! Source  lua-cjson 2.1.0 as Redis 7.0 has it.

mod decode;
mod encode;
mod number;

use std::ffi::c_int;
use std::sync::Arc;

use mlua::{Error, Lua, MultiValue, Result, Table, Value};
use parking_lot::Mutex;

use super::auxiliary::{BYTES_PER_STEP, Call, Library, Sink};
use super::budget::Budget;
use super::calls::Server;
use super::fault::Stopped;
use super::shortcuts::short_text;
use super::stack::{Arguments, Part, Room, Stack};

/// The table `cjson`, and its settings.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<(Table, Arc<Mutex<Settings>>)> {
    let library = Library::new(lua, budget)?;
    let settings = Arc::new(Mutex::new(Settings::default()));

    let kept = Arc::clone(&settings);
    library.add("encode", move |call| encode::encode(call, &kept.lock()))?;
    let kept = Arc::clone(&settings);
    library.add("decode", move |call| decode::decode(call, &kept.lock()))?;
    let kept = Arc::clone(&settings);
    library.add("encode_sparse_array", move |call| encode_sparse_array(call, &mut kept.lock()))?;
    let setters: [(&str, Setter); 6] = [
        ("encode_max_depth", |call, settings| lone(call, &mut settings.encode_depth_max, 1, i32::MAX)),
        ("decode_max_depth", |call, settings| lone(call, &mut settings.decode_depth_max, 1, i32::MAX)),
        ("encode_number_precision", |call, settings| lone(call, &mut settings.encode_digits, 1, DIGITS_MAX)),
        ("encode_keep_buffer", |call, settings| choice(call, &mut settings.encode_keeps_buffer, BOOLEAN)),
        ("encode_invalid_numbers", |call, settings| {
            choice(call, &mut settings.encode_invalid, &["off", "on", "null"])
        }),
        ("decode_invalid_numbers", |call, settings| choice(call, &mut settings.decode_invalid, BOOLEAN)),
    ];
    for (name, set) in setters {
        let kept = Arc::clone(&settings);
        library.add(name, move |call| set(call, &mut kept.lock()))?;
    }
    let kept = Arc::clone(budget);
    library.add("new", move |call| install(call.lua, &kept).map(|(table, _)| table))?;
    library.table.raw_set("null", Value::NULL)?;
    library.table.raw_set("_NAME", "cjson")?;
    library.table.raw_set("_VERSION", "2.1.0")?;
    Ok((library.table, settings))
}

/// `encode`, above its argument on the stack; `None` where that is not as it should be.
pub(super) fn encode_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 1 {
        return None;
    }
    let settings = &server.shared.json;
    server.write(|call, out| {
        stack.push_copy(1);
        encode::above(call, &settings.lock(), stack, out, &call.lift()).ok().map(|()| 1)
    })
}

/// `encode` of a text, which is written alike whatever is set, into the room; `None` where it is none, or too long for that.
pub(super) fn encode_text(arguments: &Arguments<'_>, room: &mut Room) -> Option<()> {
    let text = if arguments.len() == 1 { arguments.text(1)? } else { return None };
    arguments.meter.charge(text.len() / BYTES_PER_STEP).ok()?;
    encode::string(room, text).ok()
}

/// `decode`, in the same way.
pub(super) fn decode_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 1 {
        return None;
    }
    let settings = &server.shared.json;
    server.write(|call, copy| {
        copy.push(short_text(stack, 1)?).ok()?;
        decode::above(call, &settings.lock(), copy.bytes(), stack, &call.lift()).ok().map(|()| 1)
    })
}

/// `decode` of a text or a number; `None` for anything else.
pub(super) fn decode_scalar(arguments: &Arguments<'_>) -> Option<Part> {
    let text = if arguments.len() == 1 { arguments.text(1)? } else { return None };
    arguments.meter.charge(text.len() / BYTES_PER_STEP).ok()?;
    decode::scalar(text)
}

/// Why a text or a value is refused.
enum Refused {
    /// It is not what it should be: what the script is told, behind the place where it called.
    Text(String),
    /// The script has to end.
    Stopped,
}

/// What becomes of a text or a value.
type Done<T> = std::result::Result<T, Refused>;

impl Refused {
    /// What the function raises.
    fn said_by(self, call: &Call<'_>) -> Error {
        match self {
            Self::Text(text) => call.error(text),
            Self::Stopped => Stopped.into(),
        }
    }
}

impl From<Stopped> for Refused {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// What a script can set. An enumeration is the place of its word among those that it may be.
#[derive(Debug)]
pub(super) struct Settings {
    /// Tables within tables that are encoded.
    encode_depth_max: i32,
    /// Significant digits of a number, from 1 to [`DIGITS_MAX`].
    encode_digits: i32,
    /// What becomes of numbers that are not finite: an error, their name, `null`.
    encode_invalid: i32,
    /// Without effect: a buffer lives as long as its call.
    encode_keeps_buffer: i32,
    /// Whether an array with too many holes is encoded as an object rather than refused.
    encode_sparse_converts: i32,
    /// How many places an array may have for every value in it; 0: any number.
    encode_sparse_ratio: i32,
    /// How many places an array may always have.
    encode_sparse_safe: i32,
    /// Arrays and objects within each other that are decoded.
    decode_depth_max: i32,
    /// Whether numbers that JSON does not allow are read.
    decode_invalid: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            encode_depth_max: 1000,
            encode_digits: DIGITS_MAX,
            encode_invalid: 0,
            encode_keeps_buffer: 1,
            encode_sparse_converts: 0,
            encode_sparse_ratio: 2,
            encode_sparse_safe: 10,
            decode_depth_max: 1000,
            decode_invalid: 1,
        }
    }
}

/// One function that sets and tells.
type Setter = fn(&Call<'_>, &mut Settings) -> Result<Value>;

/// Significant digits of a number at most.
const DIGITS_MAX: i32 = 14;
/// The words of a setting that is on or off.
const BOOLEAN: &[&str] = &["off", "on"];

fn encode_sparse_array(call: &Call<'_>, settings: &mut Settings) -> Result<MultiValue> {
    at_most(call, 3)?;
    Ok(MultiValue::from_vec(vec![
        enumeration(call, &mut settings.encode_sparse_converts, BOOLEAN)?,
        integer(call, 2, &mut settings.encode_sparse_ratio, 0, i32::MAX)?,
        integer(call, 3, &mut settings.encode_sparse_safe, 0, i32::MAX)?,
    ]))
}

/// The only argument sets an integer.
fn lone(call: &Call<'_>, setting: &mut i32, min: i32, max: i32) -> Result<Value> {
    at_most(call, 1)?;
    integer(call, 1, setting, min, max)
}

/// The only argument sets an enumeration.
fn choice(call: &Call<'_>, setting: &mut i32, words: &[&str]) -> Result<Value> {
    at_most(call, 1)?;
    enumeration(call, setting, words)
}

fn at_most(call: &Call<'_>, count: usize) -> Result<()> {
    if call.len() > count { Err(call.bad(count + 1, "found too many arguments")) } else { Ok(()) }
}

fn integer(call: &Call<'_>, at: usize, setting: &mut i32, min: i32, max: i32) -> Result<Value> {
    if !call.value(at).is_nil() {
        // C takes the lowest 32 bits without a look at the others, and blames the first argument for all.
        let value = call.integer(at)? as i32;
        if !(min..=max).contains(&value) {
            return Err(call.bad(1, format!("expected integer between {min} and {max}")));
        }
        *setting = value;
    }
    Ok(Value::Number(f64::from(*setting)))
}

/// Sets to a truth value, or to one of the words; the first two are told as truth values.
fn enumeration(call: &Call<'_>, setting: &mut i32, words: &[&str]) -> Result<Value> {
    match call.value(1) {
        Value::Nil => {}
        Value::Boolean(value) => *setting = i32::from(*value),
        _ => {
            let text = call.string(1)?;
            let text = text.as_bytes();
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            let place = words.iter().position(|word| word.as_bytes() == text);
            let why = || [b"invalid option '", text, b"'"].concat();
            *setting = place.ok_or_else(|| call.bad(1, why()))? as i32;
        }
    }
    match *setting {
        0 | 1 => Ok(Value::Boolean(*setting == 1)),
        other => Ok(Value::String(call.lua.create_string(words[other as usize])?)),
    }
}
