//! The expected replies of transcripts: exact values, and wildcards for unpredictable ones.
//!
//! Knows    how RESP3's types read over RESP2: a map as a flat array, a double as a bulk string, and so on, so
//!          that one pattern serves both protocols wherever the server follows that rule.
//! Time     a remaining time is exact where the clock is manual; where it runs, it may have run on a little.

use std::collections::HashMap;

use super::reply::Reply;
use super::words::quoted;

/// The state of the run when a reply arrives.
pub(crate) struct Terms<'a> {
    /// 2 or 3: the protocol of the reading client.
    pub(crate) protocol: u8,
    pub(crate) clock_is_manual: bool,
    /// The values kept by `<... as name>`.
    pub(crate) names: &'a mut HashMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pattern {
    Any,
    Exact(Reply),
    /// Fits the inner pattern, and the value is kept under the name.
    Named(Box<Pattern>, String),
    IntBetween(i64, i64),
    /// A remaining time, and by how much less it may be where time runs by itself.
    Remaining(i64, i64),
    /// The text of `kind` (`+`, `-`, `$`, `=`) fits every glob.
    Text(u8, Vec<Vec<u8>>),
    Double,
    List(Items),
    Map(Vec<(Pattern, Pattern)>, Tail),
    Set(Items),
    Push(Items),
}

/// The elements of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Items {
    pub(crate) items: Vec<Pattern>,
    pub(crate) tail: Tail,
    pub(crate) in_any_order: bool,
}

/// The elements allowed after the listed ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tail {
    Anything,
    Nothing,
}

impl Pattern {
    /// Reads a pattern; `Ok(None)` where a bracket is still open and the next line belongs to it.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, String> {
        let text = text.trim();
        let mut parser = Parser { rest: text };
        if let Some(line) = text.strip_prefix(['+', '-']).filter(|line| !line.starts_with('"')) {
            let reply = if text.starts_with('+') { Reply::Simple } else { Reply::Error };
            return Ok(Some(Self::Exact(reply(line.as_bytes().to_vec()))));
        }
        match parser.pattern() {
            Ok(pattern) if parser.rest.trim().is_empty() => Ok(Some(pattern)),
            Ok(_) => Err(format!("what is {:?} doing here", parser.rest)),
            Err(Trouble::Open) => Ok(None),
            Err(Trouble::Wrong(why)) => Err(why),
        }
    }

    /// Whether the reply matches this pattern.
    pub(crate) fn fits(&self, reply: &Reply, terms: &mut Terms<'_>) -> bool {
        let is_old = terms.protocol == 2;
        match (self, reply) {
            (Self::Any, _) => true,
            (Self::Exact(expected), got) => exactly(expected, got, is_old),
            (Self::Named(inner, name), got) => {
                let fits = inner.fits(got, terms);
                let value = match got {
                    Reply::Int(value) => value.to_string(),
                    Reply::Bulk(text) | Reply::Simple(text) => String::from_utf8_lossy(text).into_owned(),
                    _ => return false,
                };
                terms.names.insert(name.clone(), value);
                fits
            }
            (Self::IntBetween(low, high), Reply::Int(value)) => (low..=high).contains(&value),
            (Self::Remaining(left, _), Reply::Int(value)) if terms.clock_is_manual => value == left,
            (Self::Remaining(left, slack), Reply::Int(value)) => (left - slack..=*left).contains(value),
            (Self::Text(b'+', globs), Reply::Simple(text))
            | (Self::Text(b'-', globs), Reply::Error(text))
            | (Self::Text(b'$', globs), Reply::Bulk(text)) => all_fit(globs, text),
            (Self::Text(b'=', globs), Reply::Bulk(text)) if is_old => all_fit(globs, text),
            (Self::Text(b'=', globs), Reply::Verbatim(_, text)) => all_fit(globs, text),
            (Self::Double, Reply::Double(_)) => true,
            (Self::Double, Reply::Bulk(text)) if is_old => {
                String::from_utf8_lossy(text).parse::<f64>().is_ok()
            }
            (Self::List(items), Reply::List(b'*', got)) => items.fit(got, terms),
            (Self::Set(items), Reply::List(kind, got)) => {
                *kind == if is_old { b'*' } else { b'~' } && items.fit(got, terms)
            }
            (Self::Push(items), Reply::List(kind, got)) => {
                *kind == if is_old { b'*' } else { b'>' } && items.fit(got, terms)
            }
            (Self::Map(pairs, tail), Reply::Map(got)) => pairs_fit(pairs, *tail, got, terms),
            (Self::Map(pairs, tail), Reply::List(b'*', got)) if is_old && got.len() % 2 == 0 => {
                let got: Vec<_> =
                    got.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                pairs_fit(pairs, *tail, &got, terms)
            }
            _ => false,
        }
    }
}

impl Items {
    fn fit(&self, got: &[Reply], terms: &mut Terms<'_>) -> bool {
        if got.len() < self.items.len() || (self.tail == Tail::Nothing && got.len() > self.items.len()) {
            return false;
        }
        if !self.in_any_order {
            return self.items.iter().zip(got).all(|(item, got)| item.fits(got, terms));
        }
        let mut left: Vec<&Reply> = got.iter().collect();
        self.items.iter().all(|item| match left.iter().position(|got| item.fits(got, terms)) {
            Some(at) => {
                left.swap_remove(at);
                true
            }
            None => false,
        })
    }
}

/// Pairs in order; with a tail, each pair anywhere.
fn pairs_fit(
    pairs: &[(Pattern, Pattern)],
    tail: Tail,
    got: &[(Reply, Reply)],
    terms: &mut Terms<'_>,
) -> bool {
    let mut fits = |pair: &(Pattern, Pattern), got: &(Reply, Reply)| {
        pair.0.fits(&got.0, terms) && pair.1.fits(&got.1, terms)
    };
    match tail {
        Tail::Nothing => pairs.len() == got.len() && pairs.iter().zip(got).all(|(pair, got)| fits(pair, got)),
        Tail::Anything => pairs.iter().all(|pair| got.iter().any(|got| fits(pair, got))),
    }
}

fn exactly(expected: &Reply, got: &Reply, is_old: bool) -> bool {
    match (expected, got) {
        (Reply::NilBulk | Reply::NilArray, Reply::Null) => !is_old,
        (_, Reply::NilBulk | Reply::NilArray) => is_old && expected == got,
        (Reply::Double(text) | Reply::BigNumber(text), Reply::Bulk(got)) => is_old && text == got,
        (Reply::Verbatim(_, text), Reply::Bulk(got)) => is_old && text == got,
        (Reply::Bool(value), Reply::Int(got)) => is_old && i64::from(*value) == *got,
        _ => expected == got,
    }
}

fn all_fit(globs: &[Vec<u8>], text: &[u8]) -> bool {
    globs.iter().all(|glob| glob_fits(glob, text))
}

/// `*` stands for any bytes; everything else for itself. Linear in practice: the last star alone is retried.
fn glob_fits(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < text.len() {
        if glob.get(at) == Some(&b'*') {
            star = Some((at, read));
            at += 1;
        } else if glob.get(at) == Some(&text[read]) {
            at += 1;
            read += 1;
        } else if let Some((star_at, from)) = star {
            star = Some((star_at, from + 1));
            at = star_at + 1;
            read = from + 1;
        } else {
            return false;
        }
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

enum Trouble {
    /// The text ended inside brackets.
    Open,
    Wrong(String),
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn pattern(&mut self) -> Result<Pattern, Trouble> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else { return Err(Trouble::Open) };
        match first {
            '"' => Ok(Pattern::Exact(Reply::Bulk(self.string()?))),
            '+' | '-' => {
                self.rest = &self.rest[1..];
                let text = self.string()?;
                Ok(Pattern::Exact(if first == '+' { Reply::Simple(text) } else { Reply::Error(text) }))
            }
            ':' => {
                let word = &self.word()[1..];
                let value = word.parse().map_err(|_| Trouble::Wrong(format!("{word:?} is no integer")))?;
                Ok(Pattern::Exact(Reply::Int(value)))
            }
            ',' => Ok(Pattern::Exact(Reply::Double(self.word().as_bytes()[1..].to_vec()))),
            '(' => Ok(Pattern::Exact(Reply::BigNumber(self.word().as_bytes()[1..].to_vec()))),
            '=' => {
                let (kind, rest) = self.rest[1..].split_once(':').ok_or_else(|| self.wrong())?;
                self.rest = rest;
                Ok(Pattern::Exact(Reply::Verbatim(kind.as_bytes().to_vec(), self.string()?)))
            }
            '[' => self.items(false).map(Pattern::List),
            '{' => self.map(),
            '~' | '>' => {
                self.rest = &self.rest[1..];
                let items = self.items(false)?;
                Ok(if first == '~' { Pattern::Set(items) } else { Pattern::Push(items) })
            }
            '<' => self.wildcard(),
            _ => self.named(),
        }
    }

    fn named(&mut self) -> Result<Pattern, Trouble> {
        match self.word() {
            "nil" => Ok(Pattern::Exact(Reply::NilBulk)),
            "nil-array" => Ok(Pattern::Exact(Reply::NilArray)),
            "#t" => Ok(Pattern::Exact(Reply::Bool(true))),
            "#f" => Ok(Pattern::Exact(Reply::Bool(false))),
            "unordered" => {
                self.rest = self.rest.trim_start();
                if let Some(rest) = self.rest.strip_prefix('~') {
                    self.rest = rest;
                    return self.items(true).map(Pattern::Set);
                }
                self.items(true).map(Pattern::List)
            }
            _ => Err(self.wrong()),
        }
    }

    fn items(&mut self, in_any_order: bool) -> Result<Items, Trouble> {
        self.expect("[")?;
        let mut items = Vec::new();
        let mut tail = Tail::Nothing;
        while !self.take("]")? {
            if self.take("...")? {
                tail = Tail::Anything;
            } else {
                items.push(self.pattern()?);
            }
            if !self.take(",")? {
                self.expect("]")?;
                break;
            }
        }
        Ok(Items { items, tail, in_any_order })
    }

    fn map(&mut self) -> Result<Pattern, Trouble> {
        self.expect("{")?;
        let mut pairs = Vec::new();
        let mut tail = Tail::Nothing;
        while !self.take("}")? {
            if self.take("...")? {
                tail = Tail::Anything;
            } else {
                let key = self.pattern()?;
                self.expect("=>")?;
                pairs.push((key, self.pattern()?));
            }
            if !self.take(",")? {
                self.expect("}")?;
                break;
            }
        }
        Ok(Pattern::Map(pairs, tail))
    }

    fn wildcard(&mut self) -> Result<Pattern, Trouble> {
        self.expect("<")?;
        let pattern = match self.word() {
            "any" => Pattern::Any,
            "double" => Pattern::Double,
            "int" => match self.rest.trim_start().split_once("..") {
                Some((low, rest)) if !low.is_empty() && low.parse::<i64>().is_ok() => {
                    let low = low.parse().map_err(|_| self.wrong())?;
                    self.rest = rest;
                    Pattern::IntBetween(low, self.integer()?)
                }
                _ => Pattern::IntBetween(i64::MIN, i64::MAX),
            },
            "ms" => Pattern::Remaining(self.integer()?, SLACK_MS),
            "s" => Pattern::Remaining(self.integer()?, SLACK_MS / 1_000),
            "simple" => Pattern::Text(b'+', self.globs()?),
            "error" => Pattern::Text(b'-', self.globs()?),
            "bulk" => Pattern::Text(b'$', self.globs()?),
            "text" => Pattern::Text(b'=', self.globs()?),
            _ => return Err(self.wrong()),
        };
        let pattern = match self.take("as ")? {
            true => Pattern::Named(Box::new(pattern), self.word().to_owned()),
            false => pattern,
        };
        self.expect(">")?;
        Ok(pattern)
    }

    fn globs(&mut self) -> Result<Vec<Vec<u8>>, Trouble> {
        let mut globs = Vec::new();
        if self.take("~")? {
            self.rest = self.rest.trim_start();
            while self.rest.starts_with('"') {
                globs.push(self.string()?);
                self.rest = self.rest.trim_start();
            }
        }
        Ok(globs)
    }

    fn integer(&mut self) -> Result<i64, Trouble> {
        let word = self.word();
        word.parse().map_err(|_| Trouble::Wrong(format!("{word:?} is no integer")))
    }

    fn string(&mut self) -> Result<Vec<u8>, Trouble> {
        let (text, rest) = quoted(self.rest).map_err(Trouble::Wrong)?;
        self.rest = rest;
        Ok(text)
    }

    /// Up to white space or the end of an element.
    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let ends = |letter: char| letter.is_whitespace() || matches!(letter, ']' | '}' | '>' | '[');
        let from = self.rest.chars().next().map_or(0, char::len_utf8);
        let end = self.rest[from..]
            .find(|letter| ends(letter) || letter == ',')
            .map_or(self.rest.len(), |at| at + from);
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn take(&mut self, token: &str) -> Result<bool, Trouble> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Err(Trouble::Open);
        }
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        Ok(rest.is_some())
    }

    fn expect(&mut self, token: &str) -> Result<(), Trouble> {
        if self.take(token)? {
            Ok(())
        } else {
            Err(Trouble::Wrong(format!("{token:?} is missing before {:?}", self.rest)))
        }
    }

    fn wrong(&self) -> Trouble {
        Trouble::Wrong(format!("no pattern ends before {:?}", self.rest))
    }
}

/// How far a clock that runs may have run on between two steps of a transcript, on a busy machine.
const SLACK_MS: i64 = 2_000;

#[cfg(test)]
mod fitting {
    use std::collections::HashMap;

    use super::*;

    fn fits(pattern: &str, wire: &str, protocol: u8) -> bool {
        let pattern = Pattern::parse(pattern).expect("readable").expect("complete");
        let (reply, _) = Reply::read(wire.as_bytes()).expect("readable").expect("complete");
        pattern.fits(&reply, &mut Terms { protocol, clock_is_manual: true, names: &mut HashMap::new() })
    }

    #[test]
    fn a_value_fits_itself_and_nothing_near_it() {
        for (pattern, same, other) in [
            ("+OK", "+OK\r\n", "+OKAY\r\n"),
            ("+OK", "+OK\r\n", "$2\r\nOK\r\n"),
            ("-ERR no", "-ERR no\r\n", "-ERR no!\r\n"),
            (":1", ":1\r\n", ":2\r\n"),
            ("\"v\"", "$1\r\nv\r\n", "+v\r\n"),
            ("nil", "$-1\r\n", "*-1\r\n"),
            ("nil-array", "*-1\r\n", "$-1\r\n"),
            ("[:1, :2]", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n"),
            ("[:1]", "*1\r\n:1\r\n", "*2\r\n:1\r\n:2\r\n"),
            ("unordered [:1, :2]", "*2\r\n:2\r\n:1\r\n", "*2\r\n:1\r\n:1\r\n"),
            ("[:1, ...]", "*2\r\n:1\r\n:2\r\n", "*1\r\n:2\r\n"),
            ("<int 1..3>", ":3\r\n", ":4\r\n"),
            ("<ms 100>", ":100\r\n", ":99\r\n"),
            ("<error ~ \"ERR *\">", "-ERR x\r\n", "-WRONG x\r\n"),
            ("<bulk ~ \"*a*\" \"*b\">", "$2\r\nab\r\n", "$2\r\nba\r\n"),
        ] {
            assert!(fits(pattern, same, 2), "{pattern} must fit {same:?}");
            assert!(!fits(pattern, other, 2), "{pattern} must not fit {other:?}");
        }
    }

    #[test]
    fn a_type_of_resp3_fits_its_older_spelling_over_resp2_only() {
        for (pattern, old, new) in [
            ("{\"a\" => :1}", "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"),
            ("~[:1]", "*1\r\n:1\r\n", "~1\r\n:1\r\n"),
            (",1.5", "$3\r\n1.5\r\n", ",1.5\r\n"),
            ("#t", ":1\r\n", "#t\r\n"),
            ("=txt:\"hi\"", "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            ("nil", "$-1\r\n", "_\r\n"),
            ("nil-array", "*-1\r\n", "_\r\n"),
        ] {
            assert!(fits(pattern, old, 2), "{pattern} over RESP2");
            assert!(fits(pattern, new, 3), "{pattern} over RESP3");
            assert!(!fits(pattern, old, 3), "{pattern}: the old spelling over RESP3");
        }
    }

    #[test]
    fn a_clock_that_runs_may_have_run_on_but_never_back() {
        let mut names = HashMap::new();
        let mut terms = Terms { protocol: 2, clock_is_manual: false, names: &mut names };
        let pattern = Pattern::parse("<ms 5000>").unwrap().expect("complete");
        assert!(pattern.fits(&Reply::Int(4_999), &mut terms));
        assert!(!pattern.fits(&Reply::Int(5_001), &mut terms));
        assert!(!pattern.fits(&Reply::Int(2_999), &mut terms));
    }
}
