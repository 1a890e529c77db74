//! The lexer of Lua 5.1: splits a script into tokens, exactly as the interpreter inside Redis does.
//!
//! Owns    the rules for names, numbers, strings, long brackets, comments and line counts.
//! Knows   nothing of grammar: tokens may still be no valid Lua.
//! Bounds  one pass, no recursion, at most [`SCRIPT_BYTES_MAX`] bytes and [`TOKENS_MAX`] tokens: it faces the network.
//! Source  Lua 5.1 reference manual, section 2.1; `llex.c` of Lua 5.1.5 for what the manual leaves open.

use std::borrow::Cow;

/// Why a text cannot be split into tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum LexError {
    /// More bytes or tokens than a lock script has.
    #[error("too long")]
    TooLong,
    /// A byte or an escape that is not Lua.
    #[error("unexpected byte")]
    UnexpectedByte,
    /// A string or a long comment that does not end.
    #[error("unfinished string or comment")]
    UnfinishedText,
}

/// Bytes of the longest script that is parsed. The longest known lock script has a tenth of it.
pub const SCRIPT_BYTES_MAX: usize = 16 * 1024;
/// Tokens of the longest script that is parsed.
pub(crate) const TOKENS_MAX: usize = 4 * 1024;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Token<'a> {
    /// A keyword or a symbol: `then`, `==`, `(`.
    Mark(&'static str),
    Name(&'a str),
    Number(&'a str),
    /// A string, its escapes resolved.
    Text(Cow<'a, [u8]>),
}

impl Token<'_> {
    pub(super) fn is(&self, mark: &str) -> bool {
        matches!(self, Token::Mark(own) if *own == mark)
    }

    pub(super) fn is_any(&self, marks: &[&str]) -> bool {
        matches!(self, Token::Mark(own) if marks.contains(own))
    }
}

/// A token and the line on which it ends, counted from 1 as Lua's error texts count.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lexeme<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: u32,
}

/// Splits a script into tokens, without comments and white space.
pub(super) fn tokens(script: &[u8]) -> Result<Vec<Lexeme<'_>>, LexError> {
    if script.len() > SCRIPT_BYTES_MAX {
        return Err(LexError::TooLong);
    }
    let mut lexer = Lexer { script, at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(token) = lexer.next()? {
        if found.len() == TOKENS_MAX {
            return Err(LexError::TooLong);
        }
        found.push(Lexeme { token, line: lexer.line });
    }
    Ok(found)
}

struct Lexer<'a> {
    script: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, LexError> {
        self.skip_blanks()?;
        let Some(byte) = self.peek() else { return Ok(None) };
        let token = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek_at(1).is_some_and(|next| next.is_ascii_digit()) => self.number(),
            b'"' | b'\'' => Token::Text(self.quoted(byte)?),
            b'[' => match self.long_bracket()? {
                Some(level) => Token::Text(self.long_text(level)?),
                None => self.symbol()?,
            },
            _ => self.symbol()?,
        };
        Ok(Some(token))
    }

    fn skip_blanks(&mut self) -> Result<(), LexError> {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' | b'\r' => self.new_line(),
                b' ' | b'\t' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek_at(1) == Some(b'-') => self.comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), LexError> {
        self.at += 2;
        if self.peek() == Some(b'[') {
            // A malformed long bracket makes an ordinary comment, never an error.
            if let Ok(Some(level)) = self.long_bracket() {
                return self.long_text(level).map(drop);
            }
        }
        while self.peek().is_some_and(|byte| byte != b'\n' && byte != b'\r') {
            self.at += 1;
        }
        Ok(())
    }

    /// One line end, of one byte or of two different ones.
    fn new_line(&mut self) {
        let first = self.peek();
        self.at += 1;
        if matches!(self.peek(), Some(b'\n' | b'\r')) && self.peek() != first {
            self.at += 1;
        }
        self.line += 1;
    }

    fn word(&mut self) -> Token<'a> {
        let word = self.ascii_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match KEYWORDS.iter().find(|keyword| **keyword == word) {
            Some(keyword) => Token::Mark(keyword),
            None => Token::Name(word),
        }
    }

    fn number(&mut self) -> Token<'a> {
        let start = self.at;
        self.ascii_while(|byte| byte.is_ascii_digit() || byte == b'.');
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
        }
        self.ascii_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        Token::Number(ascii(&self.script[start..self.at]))
    }

    fn ascii_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        ascii(&self.script[start..self.at])
    }

    fn quoted(&mut self, quote: u8) -> Result<Cow<'a, [u8]>, LexError> {
        let start = self.at + 1;
        let script = self.script;
        let plain =
            script[start..].iter().position(|byte| matches!(byte, b'\\' | b'\n' | b'\r' | b'"' | b'\''));
        if let Some(length) = plain
            && script[start + length] == quote
        {
            self.at = start + length + 1;
            return Ok(Cow::Borrowed(&script[start..start + length]));
        }
        self.at = start;
        let mut text = Vec::new();
        loop {
            match self.peek() {
                None | Some(b'\n' | b'\r') => return Err(LexError::UnfinishedText),
                Some(b'\\') => self.escape(&mut text)?,
                Some(byte) => {
                    self.at += 1;
                    if byte == quote {
                        return Ok(Cow::Owned(text));
                    }
                    text.push(byte);
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), LexError> {
        self.at += 1;
        let Some(byte) = self.peek() else { return Err(LexError::UnfinishedText) };
        match byte {
            b'\n' | b'\r' => {
                self.new_line();
                text.push(b'\n');
                return Ok(());
            }
            b'0'..=b'9' => {
                let mut code = 0_u16;
                for _ in 0..3 {
                    let Some(digit) = self.peek().filter(u8::is_ascii_digit) else { break };
                    code = code * 10 + u16::from(digit - b'0');
                    self.at += 1;
                }
                text.push(u8::try_from(code).map_err(|_| LexError::UnexpectedByte)?);
                return Ok(());
            }
            _ => {}
        }
        self.at += 1;
        text.push(match byte {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            other => other,
        });
        Ok(())
    }

    /// Skips the long bracket that opens here and returns its level; `None` if there is none.
    fn long_bracket(&mut self) -> Result<Option<usize>, LexError> {
        let level = self.script[self.at + 1..].iter().take_while(|byte| **byte == b'=').count();
        match self.peek_at(level + 1) {
            Some(b'[') => {
                self.at += level + 2;
                Ok(Some(level))
            }
            _ if level == 0 => Ok(None),
            _ => Err(LexError::UnexpectedByte),
        }
    }

    fn long_text(&mut self, level: usize) -> Result<Cow<'a, [u8]>, LexError> {
        if matches!(self.peek(), Some(b'\n' | b'\r')) {
            self.new_line();
        }
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' | b'\r' => {
                    self.new_line();
                    text.push(b'\n');
                    continue;
                }
                b']' if self.closes(level) => {
                    self.at += level + 2;
                    return Ok(Cow::Owned(text));
                }
                // Lua 5.1 refuses nested brackets of level 0.
                b'[' if level == 0 && self.peek_at(1) == Some(b'[') => return Err(LexError::UnexpectedByte),
                _ => text.push(byte),
            }
            self.at += 1;
        }
        Err(LexError::UnfinishedText)
    }

    fn closes(&self, level: usize) -> bool {
        let rest = &self.script[self.at + 1..];
        rest.len() > level && rest[..level].iter().all(|byte| *byte == b'=') && rest[level] == b']'
    }

    fn symbol(&mut self) -> Result<Token<'a>, LexError> {
        let rest = &self.script[self.at..];
        match SYMBOLS.iter().find(|symbol| rest.starts_with(symbol.as_bytes())) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Mark(symbol))
            }
            None => Err(LexError::UnexpectedByte),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.script.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.script.get(self.at + ahead).copied()
    }
}

fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("only ASCII bytes were scanned")
}

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil",
    "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// Longest first, so that the first match is the right one.
const SYMBOLS: [&str; 26] = [
    "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")", "{",
    "}", "[", "]", ";", ":", ",", ".",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<Vec<u8>> {
        let found = tokens(script.as_bytes()).unwrap();
        let text = |lexeme: Lexeme<'_>| match lexeme.token {
            Token::Text(text) => Some(text.into_owned()),
            _ => None,
        };
        found.into_iter().filter_map(text).collect()
    }

    fn marks(script: &str) -> Vec<String> {
        let show = |lexeme: &Lexeme<'_>| match &lexeme.token {
            Token::Mark(mark) => (*mark).to_owned(),
            Token::Name(name) => format!("name {name}"),
            Token::Number(number) => format!("number {number}"),
            Token::Text(text) => format!("text {}", String::from_utf8_lossy(text)),
        };
        tokens(script.as_bytes()).unwrap().iter().map(show).collect()
    }

    #[test]
    fn quotes_escapes_and_long_brackets_spell_equal_strings() {
        for spelling in
            ["'get'", "\"get\"", "'g\\101t'", "\"\\get\"", "[[get]]", "[==[\nget]==]", "'\\103et'"]
        {
            assert_eq!(texts(spelling), [b"get"], "{spelling}");
        }
    }

    #[test]
    fn a_longest_symbol_wins_over_its_beginning() {
        assert_eq!(
            marks("a..b ~= c...d <= 1"),
            ["name a", "..", "name b", "~=", "name c", "...", "name d", "<=", "number 1"]
        );
    }

    #[test]
    fn comments_of_every_kind_leave_no_token() {
        assert_eq!(
            marks("a -- b\nc --[[ d\n]] e --[==[ ]] ]==] f --[=x\n g"),
            ["name a", "name c", "name e", "name f", "name g"]
        );
    }

    #[test]
    fn lines_are_counted_as_lua_counts_them() {
        let found = tokens(b"a\r\nb\n\rc\n\nd --[[\n]] e '\\\n' f").unwrap();
        assert_eq!(found.iter().map(|lexeme| lexeme.line).collect::<Vec<_>>(), [1, 2, 3, 5, 6, 7, 7]);
    }

    #[test]
    fn text_that_is_not_lua_is_refused() {
        for script in [
            "'open", "\"a\nb\"", "[[open", "--[[open", "a ~ b", "a ! b", "[=x", "'\\999'", "#!lua", "\u{e9}",
            "[[ [[ ]]", "a\0b", "@1",
        ] {
            assert!(tokens(script.as_bytes()).is_err(), "{script:?}");
        }
    }

    #[test]
    fn a_script_past_the_bounds_is_refused() {
        assert_eq!(tokens(&vec![b' '; SCRIPT_BYTES_MAX + 1]), Err(LexError::TooLong));
        assert_eq!(tokens("a ".repeat(TOKENS_MAX + 1).as_bytes()), Err(LexError::TooLong));
        assert_eq!(tokens("a ".repeat(TOKENS_MAX).as_bytes()).unwrap().len(), TOKENS_MAX);
    }
}
