//! The first pass over a script's tokens: separators and parentheses that change nothing are dropped.
//!
//! Owns    what Lua's grammar says about where a value ends and a statement begins.
//! Knows   tokens, not scopes. It never turns a text that Lua refuses into one that Lua accepts.
//! Source  Lua 5.1 reference manual, sections 2.4 and 8.

use super::lexer::{Lexeme, Token};
use super::shape::{DEPTH_MAX, NotAShape, Operand};

/// Drops the separators and parentheses that change nothing.
pub(super) fn fold(lexemes: Vec<Lexeme<'_>>) -> Result<Vec<Lexeme<'_>>, NotAShape> {
    let partners = partners(&lexemes)?;
    let mut keep = vec![true; lexemes.len()];
    for (at, lexeme) in lexemes.iter().enumerate() {
        let closers: &[&str] = match &lexeme.token {
            Token::Mark("if" | "elseif") => &["then"],
            Token::Mark("while") => &["do"],
            Token::Mark("return") => &BLOCK_ENDS,
            _ => continue,
        };
        fold_parentheses(&lexemes, &partners, at, closers, &mut keep);
    }
    let has_function = lexemes.iter().any(|lexeme| lexeme.token.is("function"));
    for (at, _) in lexemes.iter().enumerate().filter(|(_, lexeme)| lexeme.token.is(";")) {
        // An empty parameter list ends like a value does, and a `;` after it is an error: functions keep theirs.
        keep[at] = has_function || partners[at] != 0 || !separates_nothing(&lexemes, at);
    }
    let mut kept = keep.into_iter();
    Ok(lexemes.into_iter().filter(|_| kept.next().unwrap_or(true)).collect())
}

/// For an opening bracket the place of its closing one; for every other token how many brackets are open around it.
fn partners(lexemes: &[Lexeme<'_>]) -> Result<Vec<usize>, NotAShape> {
    let mut partners = vec![0; lexemes.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, lexeme) in lexemes.iter().enumerate() {
        match &lexeme.token {
            Token::Mark("(" | "[" | "{") if open.len() == DEPTH_MAX => return Err(NotAShape::TooLong),
            Token::Mark("(" | "[" | "{") => open.push(at),
            Token::Mark(closing @ (")" | "]" | "}")) => {
                let opening = open.pop().ok_or(NotAShape::Unbalanced)?;
                let fits = match *closing {
                    ")" => "(",
                    "]" => "[",
                    _ => "{",
                };
                if !lexemes[opening].token.is(fits) {
                    return Err(NotAShape::Unbalanced);
                }
                partners[opening] = at;
            }
            _ => partners[at] = open.len(),
        }
    }
    if open.is_empty() { Ok(partners) } else { Err(NotAShape::Unbalanced) }
}

/// Takes the parentheses off a value that starts behind `at` and ends before one of `closers`.
fn fold_parentheses(
    lexemes: &[Lexeme<'_>],
    partners: &[usize],
    at: usize,
    closers: &[&str],
    keep: &mut [bool],
) {
    let (mut first, mut after) = (at + 1, None);
    while lexemes.get(first).is_some_and(|lexeme| lexeme.token.is("(")) {
        let last = partners[first];
        let is_whole = match after {
            Some(outer) => last + 1 == outer,
            None => ends(lexemes, last + 1, closers),
        };
        if !is_whole || !is_one_value(&lexemes[first + 1..last]) {
            return;
        }
        keep[first] = false;
        keep[last] = false;
        (first, after) = (first + 1, Some(last));
    }
}

/// False for `()`, for `(a, b)` and for anything with a statement in it: errors that must not be folded into sense.
fn is_one_value(lexemes: &[Lexeme<'_>]) -> bool {
    let mut depth = 0_usize;
    for lexeme in lexemes {
        match &lexeme.token {
            Token::Mark("(" | "[" | "{") => depth += 1,
            Token::Mark(")" | "]" | "}") => depth = depth.saturating_sub(1),
            Token::Mark("," | ";") if depth > 0 => {}
            Token::Mark("," | ";" | "=" | "then" | "in") => return false,
            token if token.is_any(&STATEMENTS) || token.is_any(&BLOCK_ENDS) => return false,
            _ => {}
        }
    }
    !lexemes.is_empty()
}

fn ends(lexemes: &[Lexeme<'_>], at: usize, closers: &[&str]) -> bool {
    match lexemes.get(at) {
        None => closers.len() == BLOCK_ENDS.len(),
        Some(lexeme) => {
            lexeme.token.is_any(closers) || (closers.len() == BLOCK_ENDS.len() && lexeme.token.is(";"))
        }
    }
}

/// True where the `;` at this place stands between two statements that are apart without it.
fn separates_nothing(lexemes: &[Lexeme<'_>], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| &lexemes[before].token) else { return false };
    let after = lexemes.get(at + 1).map(|lexeme| &lexeme.token);
    if before.is("return") || before.is("break") {
        return after.is_none_or(|after| after.is_any(&BLOCK_ENDS));
    }
    // `while x; do` is an error, so nothing is folded before `do`.
    ends_a_value(before) && starts_a_statement(after) && !after.is_some_and(|after| after.is("do"))
}

pub(super) fn ends_a_value(token: &Token<'_>) -> bool {
    match token {
        Token::Mark(mark) => matches!(*mark, ")" | "]" | "}" | "end" | "nil" | "true" | "false" | "..."),
        Token::Name(_) | Token::Number(_) | Token::Text(_) => true,
    }
}

/// True where this token, or the end of the script, cannot continue a value that is complete before it.
pub(super) fn starts_a_statement(token: Option<&Token<'_>>) -> bool {
    match token {
        None | Some(Token::Name(_)) => true,
        Some(token) => token.is_any(&STATEMENTS) || token.is_any(&BLOCK_ENDS),
    }
}

/// `KEYS[3]` or `ARGV[3]` at the head of these tokens.
pub(super) fn operand(lexemes: &[Lexeme<'_>]) -> Option<Operand> {
    let [table, open, index, close, ..] = lexemes else { return None };
    let (Token::Name(table), Token::Number(index)) = (&table.token, &index.token) else { return None };
    if !open.token.is("[") || !close.token.is("]") || !is_whole_number(index) {
        return None;
    }
    let index = index.parse().ok().filter(|index| *index > 0)?;
    match *table {
        "ARGV" => Some(Operand::Argument(index)),
        "KEYS" => Some(Operand::Key(index)),
        _ => None,
    }
}

/// True where KEYS and ARGV occur only as `KEYS[1]`, and never as the target of an assignment.
pub(super) fn only_reads_operands(lexemes: &[Lexeme<'_>]) -> bool {
    let is_table = |lexeme: &Lexeme<'_>| matches!(lexeme.token, Token::Name("ARGV" | "KEYS"));
    lexemes.iter().enumerate().filter(|(_, lexeme)| is_table(lexeme)).all(|(at, _)| {
        operand(&lexemes[at..]).is_some() && !lexemes.get(at + 4).is_some_and(|next| next.token.is("="))
    })
}

/// True where several names are declared or assigned to at once: rare enough to be left alone.
fn has_list_assignment(lexemes: &[Lexeme<'_>]) -> bool {
    let mut depth = 0_usize;
    let mut comma = false;
    for (at, lexeme) in lexemes.iter().enumerate() {
        match &lexeme.token {
            Token::Mark("(" | "[" | "{") => depth += 1,
            Token::Mark(")" | "]" | "}") => depth = depth.saturating_sub(1),
            Token::Mark(",") if depth == 0 => comma = true,
            Token::Mark("=") if depth == 0 && comma => return true,
            Token::Mark("local" | "for") if lexemes.get(at + 2).is_some_and(|next| next.token.is(",")) => {
                return true;
            }
            Token::Mark(mark) if depth == 0 && STATEMENTS.contains(mark) => comma = false,
            _ => {}
        }
    }
    false
}

/// True where this name is declared once, at this place, and is never assigned to.
pub(super) fn is_only_read(lexemes: &[Lexeme<'_>], name: &str, declared: usize) -> bool {
    let is_name = |lexeme: &Lexeme<'_>| matches!(lexeme.token, Token::Name(own) if own == name);
    lexemes.iter().enumerate().filter(|(at, lexeme)| *at != declared && is_name(lexeme)).all(|(at, _)| {
        let before = at.checked_sub(1).map(|before| &lexemes[before].token);
        let after = lexemes.get(at + 1).map(|lexeme| &lexeme.token);
        let is_declared = before.is_some_and(|token| token.is_any(&["local", "for", "function"]));
        !is_declared && !after.is_some_and(|token| token.is_any(&["=", "in"]))
    }) && !has_list_assignment(lexemes)
        && !lexemes.iter().any(|lexeme| lexeme.token.is("function"))
}

/// Digits that read back as they are written: no sign, no leading zero, exact as a float.
pub(super) fn is_whole_number(number: &str) -> bool {
    let is_plain = number.len() <= 15 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_plain && (number == "0" || !number.starts_with('0'))
}

const BLOCK_ENDS: [&str; 4] = ["else", "elseif", "end", "until"];
const STATEMENTS: [&str; 9] = ["break", "do", "for", "function", "if", "local", "repeat", "return", "while"];
