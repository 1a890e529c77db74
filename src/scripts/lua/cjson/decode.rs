//! JSON as Lua's values.
//!
//! Rule    a NUL ends the text wherever it stands, as the end of a C string does.

use std::ffi::c_int;

use mlua::{Result, Value};
use smallvec::SmallVec;

use super::super::auxiliary::{BYTES_PER_STEP, Call, Output, STACK_SLOTS_MAX, Sink};
use super::super::budget::Unlimited;
use super::super::stack::{self, Part, Stack};
use super::{Done, Refused, Settings, number};

/// The value of the only argument.
///
/// # Errors
/// lua-cjson's, for what is not JSON, with the place where that was seen.
pub(super) fn decode(call: &Call<'_>, settings: &Settings) -> Result<Value> {
    if call.len() != 1 {
        return Err(call.bad(1, "expected 1 argument"));
    }
    let text = call.string(1)?;
    // What is made is asked of the budget before it is made.
    let unlimited = call.lift();
    let (result, value) = stack::above(call.lua, None, &unlimited, |stack| {
        above(call, settings, &text.as_bytes(), stack, &unlimited)
    })?;
    result.map_err(|refused| refused.said_by(call))?;
    Ok(value)
}

/// Leaves the value of a text on top.
pub(super) fn above<'l>(
    call: &Call<'l>,
    settings: &Settings,
    text: &[u8],
    stack: &mut Stack<'_>,
    unlimited: &Unlimited<'l>,
) -> Done<()> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Refused::Text("JSON parser does not support UTF-16 or UTF-32".to_owned()));
    }
    let reads_invalid = settings.decode_invalid == 1;
    let lexer = Lexer { text, at: 0, start: 0, reads_invalid, unescaped: call.output() };
    let (charged, made, slots, open) = (0, 0, 1, SmallVec::new());
    Decoder { call, settings, lexer, stack, unlimited, charged, made, slots, open }.run()
}

/// A text or a number that is all there is, and written in the simplest way; `None` for anything else.
pub(super) fn scalar(text: &[u8]) -> Option<Part> {
    if let [b'"', inner @ .., b'"'] = text {
        let is_plain = !inner.iter().any(|byte| matches!(byte, b'"' | b'\\' | 0));
        return is_plain.then_some(Part::Bytes(1, inner.len()));
    }
    let (number, len) = number::few_digits(text)?;
    let is_all = len == text.len() && (text[0] != b'0' || len == 1);
    is_all.then_some(Part::Number(number))
}

/// A word of JSON.
enum Token {
    ArrayEnd,
    ArrayStart,
    Boolean(bool),
    Colon,
    Comma,
    End,
    /// None, and why.
    Error(&'static str),
    Null,
    Number(f64),
    ObjectEnd,
    ObjectStart,
    /// From here to there in the text; `None`: what the lexer has unescaped.
    String(Option<(usize, usize)>),
}

impl Token {
    /// What an error calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::ArrayEnd => "T_ARR_END",
            Self::ArrayStart => "T_ARR_BEGIN",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Error(why) => why,
            Self::Null => "T_NULL",
            Self::Number(_) => "T_NUMBER",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ObjectStart => "T_OBJ_BEGIN",
            Self::String(_) => "T_STRING",
        }
    }
}

struct Decoder<'c, 'l, 't, 's, 'k> {
    call: &'c Call<'l>,
    settings: &'c Settings,
    lexer: Lexer<'t>,
    /// The tables that the decoder is in, with the key behind them whose value comes next.
    stack: &'s mut Stack<'k>,
    unlimited: &'s Unlimited<'l>,
    /// Bytes of the text that have been charged.
    charged: usize,
    /// Bytes that have been made, since the budget was asked for them.
    made: usize,
    /// Slots of the stack that the C code would be using.
    slots: usize,
    /// Those tables, outermost first.
    open: SmallVec<[Open; 8]>,
}

/// A table that is not yet complete.
struct Open {
    /// Its place.
    table: c_int,
    /// How many items it has, if it is an array.
    items: Option<c_int>,
}

/// Bytes that a table takes, at least, with that room.
const TABLE_BYTES: usize = 104;
/// Bytes that a string takes beside its text.
const STRING_BYTES: usize = 32;
/// Bytes that an item takes, with the room that its array has for more.
const ITEM_BYTES: usize = 32;
/// Bytes that a field takes, with the room that its table has for more.
const FIELD_BYTES: usize = 80;
/// Bytes that are made before the budget is asked.
const ASKED_BYTES: usize = 64 * 1024;

impl Decoder<'_, '_, '_, '_, '_> {
    /// Leaves the value on top.
    fn run(mut self) -> Done<()> {
        let mut token = self.lexer.next()?;
        loop {
            match token {
                Token::ArrayStart => {
                    self.descend(2, [1, 0])?;
                    token = self.lexer.next()?;
                    if !matches!(token, Token::ArrayEnd) {
                        self.slots += 1;
                        self.open.push(Open { table: self.stack.len(), items: Some(0) });
                        continue;
                    }
                }
                Token::ObjectStart => {
                    self.descend(3, [0, 1])?;
                    token = self.lexer.next()?;
                    if !matches!(token, Token::ObjectEnd) {
                        self.slots += 2;
                        self.open.push(Open { table: self.stack.len(), items: None });
                        self.key(&token)?;
                        token = self.lexer.next()?;
                        continue;
                    }
                }
                scalar => self.scalar(&scalar)?,
            }
            match self.put()? {
                Some(next) => token = next,
                None => return Ok(()),
            }
        }
    }

    /// Goes into a table with room for its first element or field, for which the C code, as this, needs that many slots of
    /// its stack.
    fn descend(&mut self, slots: usize, [elements, fields]: [usize; 2]) -> Done<()> {
        let depth = self.open.len() + 1;
        let is_too_deep =
            depth > self.settings.decode_depth_max as usize || self.slots + slots > STACK_SLOTS_MAX;
        if is_too_deep || !self.stack.reserve(slots as c_int, self.unlimited) {
            let at = self.lexer.at;
            return Err(Refused::Text(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            )));
        }
        self.makes(TABLE_BYTES)?;
        self.stack.push_table(elements, fields, self.unlimited);
        Ok(())
    }

    /// Puts the value on top where it belongs, and every table that it completes; what begins the next value, or `None`
    /// where that was all.
    fn put(&mut self) -> Done<Option<Token>> {
        loop {
            self.call.charge(1 + (self.lexer.at - self.charged) / BYTES_PER_STEP)?;
            self.charged = self.lexer.at;
            let Some(Open { table, items }) = self.open.last_mut() else {
                return match self.lexer.next()? {
                    Token::End => Ok(None),
                    other => Err(self.unexpected("the end", &other)),
                };
            };
            let table = *table;
            if let Some(items) = items {
                *items += 1;
                let items = *items;
                // An array that is full moves to one of twice its size.
                self.makes(if items & (items - 1) == 0 { items as usize * ITEM_BYTES } else { 0 })?;
                self.stack.set_element(table, items, self.unlimited);
                match self.lexer.next()? {
                    Token::ArrayEnd => self.slots -= 1,
                    Token::Comma => return Ok(Some(self.lexer.next()?)),
                    other => return Err(self.unexpected("comma or array end", &other)),
                }
            } else {
                self.makes(FIELD_BYTES)?;
                self.stack.set_field(table, self.unlimited);
                match self.lexer.next()? {
                    Token::ObjectEnd => self.slots -= 2,
                    Token::Comma => {
                        let token = self.lexer.next()?;
                        self.key(&token)?;
                        return Ok(Some(self.lexer.next()?));
                    }
                    other => return Err(self.unexpected("comma or object end", &other)),
                }
            }
            self.open.pop();
        }
    }

    /// A key and its colon.
    fn key(&mut self, token: &Token) -> Done<()> {
        let Token::String(place) = token else { return Err(self.unexpected("object key string", token)) };
        self.text(*place)?;
        match self.lexer.next()? {
            Token::Colon => Ok(()),
            other => Err(self.unexpected("colon", &other)),
        }
    }

    fn scalar(&mut self, token: &Token) -> Done<()> {
        match token {
            Token::Boolean(value) => self.stack.push_boolean(*value),
            Token::Null => self.stack.push_null(),
            Token::Number(number) => self.stack.push_number(*number),
            Token::String(place) => self.text(*place)?,
            other => return Err(self.unexpected("value", other)),
        }
        Ok(())
    }

    fn text(&mut self, place: Option<(usize, usize)>) -> Done<()> {
        self.makes(self.lexer.string(place).len() + STRING_BYTES)?;
        self.stack.push_bytes(self.lexer.string(place), self.unlimited);
        Ok(())
    }

    /// So many bytes are about to be made.
    fn makes(&mut self, bytes: usize) -> Done<()> {
        self.made += bytes;
        if self.made >= ASKED_BYTES {
            let made = std::mem::take(&mut self.made);
            self.call.reserve(made)?;
        }
        Ok(())
    }

    fn unexpected(&self, expected: &str, found: &Token) -> Refused {
        let (found, at) = (found.name(), self.lexer.start + 1);
        Refused::Text(format!("Expected {expected} but found {found} at character {at}"))
    }
}

struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    /// Where the last token begins, or what is wrong with it.
    start: usize,
    /// Whether numbers that JSON does not allow are read.
    reads_invalid: bool,
    /// The last string that had escapes.
    unescaped: Output<'t>,
}

impl Lexer<'_> {
    fn next(&mut self) -> Done<Token> {
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.start = self.at;
        let token = match self.byte(0) {
            0 => return Ok(Token::End),
            b'[' => Token::ArrayStart,
            b']' => Token::ArrayEnd,
            b'{' => Token::ObjectStart,
            b'}' => Token::ObjectEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return self.quoted(),
            b'-' | b'0'..=b'9' if self.reads_invalid || !self.is_invalid_number() => return Ok(self.number()),
            b'-' | b'0'..=b'9' => return Ok(Token::Error("invalid number")),
            b'+' | b'I' | b'N' | b'f' | b'i' | b'n' | b't' => return Ok(self.word()),
            _ => return Ok(Token::Error("invalid token")),
        };
        self.at += 1;
        Ok(token)
    }

    /// The byte so far ahead; NUL beyond the end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in
            [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        if self.reads_invalid && self.is_invalid_number() {
            self.number()
        } else {
            Token::Error("invalid token")
        }
    }

    fn number(&mut self) -> Token {
        match number::read(&self.text[self.at..]) {
            Some((number, len)) => {
                self.at += len;
                Token::Number(number)
            }
            None => Token::Error("invalid number"),
        }
    }

    /// Whether this is a number for C that is none for JSON: a plus, hexadecimal, a leading zero, infinity, none at all.
    fn is_invalid_number(&self) -> bool {
        let sign_len = usize::from(self.byte(0) == b'-');
        match self.byte(sign_len) {
            _ if self.byte(0) == b'+' => true,
            b'0' => matches!(self.byte(sign_len + 1), b'x' | b'X' | b'0'..=b'9'),
            ..=b'9' => false,
            _ => {
                let word = self.text.get(self.at + sign_len..self.at + sign_len + 3).unwrap_or_default();
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    fn string(&self, place: Option<(usize, usize)>) -> &[u8] {
        place.map_or(self.unescaped.bytes(), |(from, to)| &self.text[from..to])
    }

    fn quoted(&mut self) -> Done<Token> {
        self.at += 1;
        let from = self.at;
        let mut is_plain = true;
        self.unescaped.clear();
        loop {
            let rest = &self.text[self.at..];
            let len = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(rest.len());
            if !is_plain || rest.get(len) == Some(&b'\\') {
                self.unescaped.push(&rest[..len])?;
            }
            self.at += len;
            let why = match self.byte(0) {
                b'"' => {
                    self.at += 1;
                    return Ok(Token::String(is_plain.then_some((from, from + len))));
                }
                b'\\' => self.escape()?,
                _ => Some("unexpected end of string"),
            };
            is_plain = false;
            if let Some(why) = why {
                self.start = self.at;
                return Ok(Token::Error(why));
            }
        }
    }

    /// What a backslash stands for; or what is wrong with it.
    fn escape(&mut self) -> Done<Option<&'static str>> {
        let byte = match self.byte(1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 12,
            b'r' => b'\r',
            b'u' => {
                let Some((letter, len)) = self.code_point() else {
                    return Ok(Some("invalid unicode escape code"));
                };
                self.unescaped.push(letter.encode_utf8(&mut [0; 4]).as_bytes())?;
                self.at += len;
                return Ok(None);
            }
            _ => return Ok(Some("invalid escape code")),
        };
        self.unescaped.push(&[byte])?;
        self.at += 2;
        Ok(None)
    }

    /// The letter of `\uXXXX` or of a pair of those, and how many bytes that takes.
    fn code_point(&self) -> Option<(char, usize)> {
        let first = self.hexadecimal(2)?;
        if let Some(letter) = char::from_u32(first) {
            return Some((letter, 6));
        }
        if first >= 0xdc00 || self.byte(6) != b'\\' || self.byte(7) != b'u' {
            return None;
        }
        let second = self.hexadecimal(8).filter(|second| (0xdc00..0xe000).contains(second))?;
        let letter = char::from_u32(0x10000 + ((first & 0x3ff) << 10 | second & 0x3ff))?;
        Some((letter, 12))
    }

    fn hexadecimal(&self, ahead: usize) -> Option<u32> {
        (ahead..ahead + 4).try_fold(0, |value, at| Some(value << 4 | char::from(self.byte(at)).to_digit(16)?))
    }
}
