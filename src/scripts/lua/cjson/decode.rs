//! JSON as Lua's values.
//!
//! Rule    a NUL ends the text wherever it stands, as the end of a C string does.

use mlua::{LuaString, MultiValue, Result, Table, Value};

use super::super::auxiliary::{BYTES_PER_STEP, Call, Output, STACK_SLOTS_MAX, one};
use super::{Settings, number};

/// The value of the only argument.
///
/// # Errors
/// lua-cjson's, for what is not JSON, with the place where that was seen.
pub(super) fn decode(call: &Call<'_>, settings: &Settings) -> Result<MultiValue> {
    if call.len() != 1 {
        return Err(call.bad(1, "expected 1 argument"));
    }
    let text = call.string(1)?;
    let text = text.as_bytes();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(call.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    // What a short text becomes is a few times its size at most.
    let _unlimited = (text.len() <= SHORT_BYTES).then(|| call.lift());
    let reads_invalid = settings.decode_invalid == 1;
    let lexer = Lexer { text: &text, at: 0, start: 0, reads_invalid, unescaped: call.output() };
    Ok(one(Decoder { call, settings, lexer, charged: 0, slots: 1, open: Vec::new() }.run()?))
}

/// Bytes of a text that takes so little memory that its limit need not be kept meanwhile.
const SHORT_BYTES: usize = 16 * 1024;

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

struct Decoder<'c, 'l, 't> {
    call: &'c Call<'l>,
    settings: &'c Settings,
    lexer: Lexer<'t>,
    /// Bytes of the text that have been charged.
    charged: usize,
    /// Slots of the stack that the C code would be using.
    slots: usize,
    /// The tables that the decoder is in, outermost first.
    open: Vec<Open>,
}

/// A table that is not yet complete.
enum Open {
    /// With so many items.
    Array(Table, usize),
    /// With the key whose value comes next.
    Object(Table, LuaString),
}

impl Decoder<'_, '_, '_> {
    fn run(&mut self) -> Result<Value> {
        let mut token = self.lexer.next()?;
        loop {
            let value = match token {
                Token::ArrayStart => {
                    let table = self.descend(2)?;
                    token = self.lexer.next()?;
                    if !matches!(token, Token::ArrayEnd) {
                        self.slots += 1;
                        self.open.push(Open::Array(table, 0));
                        continue;
                    }
                    Value::Table(table)
                }
                Token::ObjectStart => {
                    let table = self.descend(3)?;
                    token = self.lexer.next()?;
                    if !matches!(token, Token::ObjectEnd) {
                        self.slots += 2;
                        let key = self.key(&token)?;
                        self.open.push(Open::Object(table, key));
                        token = self.lexer.next()?;
                        continue;
                    }
                    Value::Table(table)
                }
                scalar => self.scalar(&scalar)?,
            };
            match self.put(value)? {
                Put::Next(next) => token = next,
                Put::Whole(value) => return Ok(value),
            }
        }
    }

    /// Goes into a table, for which the C code needs that many slots of its stack.
    fn descend(&self, slots: usize) -> Result<Table> {
        let depth = self.open.len() + 1;
        if depth > self.settings.decode_depth_max as usize || self.slots + slots > STACK_SLOTS_MAX {
            let at = self.lexer.at;
            let text = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(self.call.error(&text));
        }
        self.call.lua.create_table()
    }

    /// Puts a value where it belongs, and every table that it completes; what comes next begins a value.
    fn put(&mut self, mut value: Value) -> Result<Put> {
        loop {
            self.call.charge(1 + (self.lexer.at - self.charged) / BYTES_PER_STEP)?;
            self.charged = self.lexer.at;
            match self.open.last_mut() {
                None => {
                    return match self.lexer.next()? {
                        Token::End => Ok(Put::Whole(value)),
                        other => Err(self.unexpected("the end", &other)),
                    };
                }
                Some(Open::Array(table, len)) => {
                    *len += 1;
                    table.raw_set(*len, value)?;
                    match self.lexer.next()? {
                        Token::ArrayEnd => {}
                        Token::Comma => return Ok(Put::Next(self.lexer.next()?)),
                        other => return Err(self.unexpected("comma or array end", &other)),
                    }
                }
                Some(Open::Object(table, key)) => {
                    table.raw_set(&*key, value)?;
                    match self.lexer.next()? {
                        Token::ObjectEnd => {}
                        Token::Comma => return self.next_key().map(Put::Next),
                        other => return Err(self.unexpected("comma or object end", &other)),
                    }
                }
            }
            value = match self.open.pop() {
                Some(Open::Array(table, _)) => {
                    self.slots -= 1;
                    Value::Table(table)
                }
                Some(Open::Object(table, _)) => {
                    self.slots -= 2;
                    Value::Table(table)
                }
                None => Value::Nil,
            };
        }
    }

    /// Behind a comma of an object; answers what its value begins with.
    fn next_key(&mut self) -> Result<Token> {
        let token = self.lexer.next()?;
        let next = self.key(&token)?;
        if let Some(Open::Object(_, key)) = self.open.last_mut() {
            *key = next;
        }
        self.lexer.next()
    }

    /// A key and its colon.
    fn key(&mut self, token: &Token) -> Result<LuaString> {
        let Token::String(place) = token else { return Err(self.unexpected("object key string", token)) };
        let key = self.call.lua.create_string(self.lexer.string(*place))?;
        match self.lexer.next()? {
            Token::Colon => Ok(key),
            other => Err(self.unexpected("colon", &other)),
        }
    }

    fn scalar(&self, token: &Token) -> Result<Value> {
        Ok(match token {
            Token::Boolean(value) => Value::Boolean(*value),
            Token::Null => Value::NULL,
            Token::Number(number) => Value::Number(*number),
            Token::String(place) => Value::String(self.call.lua.create_string(self.lexer.string(*place))?),
            other => return Err(self.unexpected("value", other)),
        })
    }

    fn unexpected(&self, expected: &str, found: &Token) -> mlua::Error {
        let (found, at) = (found.name(), self.lexer.start + 1);
        self.call.error(format!("Expected {expected} but found {found} at character {at}"))
    }
}

/// Where a value went.
enum Put {
    /// Into a table; this begins the next one.
    Next(Token),
    /// Nowhere: it is all there was.
    Whole(Value),
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
    fn next(&mut self) -> Result<Token> {
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

    fn quoted(&mut self) -> Result<Token> {
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
    fn escape(&mut self) -> Result<Option<&'static str>> {
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
