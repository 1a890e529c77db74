//! Lua texts: what the recogniser cuts into tokens, the interpreter cuts the same way.
//!
//! Laws    spelling that means nothing changes no shape; a text that no Lua is for the recogniser is none for Lua.

use proptest::collection::vec;
use proptest::prelude::*;
use redlatch::scripts::{NotAShape, Shape, texts};

use crate::bare::{Bare, request};

/// Scraps of Lua, and scripts of clients with scraps in them.
pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    const SCRAPS: &[&str] = &[
        "if ",
        "then ",
        "else ",
        "elseif ",
        "end ",
        "return ",
        "local ",
        "a",
        "b",
        "=",
        "==",
        "~=",
        "~",
        "redis.call(",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "[[",
        "]]",
        "[=[",
        "]=]",
        "[==",
        "--",
        "--[[",
        "--[=[",
        "\n",
        "\r\n",
        "\n\r",
        "'",
        "\"",
        "\\",
        "\\n",
        "\\065",
        "\\999",
        "\\x41",
        "'get'",
        "KEYS[1]",
        "ARGV[2]",
        "1",
        "0x",
        "0xff",
        "1e",
        "1e5",
        "3..2",
        "..",
        "...",
        ".",
        ".5",
        "#",
        "%",
        "^",
        ";",
        ":",
        ",",
        "function ",
        "for ",
        "do ",
        "while ",
        "and ",
        "not ",
        "nil",
        "@",
        "!",
        "$",
        "`",
        "?",
        "&",
        "|",
        "\0",
        "\t",
        "\u{b}",
        "\u{e9}",
    ];
    let scraps = || vec(prop::sample::select(SCRAPS), 0..16).prop_map(|scraps| scraps.concat().into_bytes());
    let known: Vec<Vec<u8>> = texts().into_iter().map(|(text, _)| text.into_bytes()).collect();
    let spoilt = (prop::sample::select(known), any::<prop::sample::Index>(), 0..6_usize, scraps());
    let spoilt = spoilt.prop_map(|(mut text, at, taken, scraps)| {
        let at = at.index(text.len() + 1);
        let end = (at + taken).min(text.len());
        text.splice(at..end, scraps);
        text
    });
    prop_oneof![2 => spoilt, 2 => scraps(), 1 => vec(any::<u8>(), 0..60)].boxed()
}

pub(crate) fn check(text: &[u8]) {
    let shape = Shape::of(text).map(|shape| shape.sha1());
    for (before, after) in
        [(" \n\t", ""), ("-- a comment\n", ""), ("--[==[ ]] ]==]", " \r\n"), ("", "\n-- the end")]
    {
        let dressed = [before.as_bytes(), text, after.as_bytes()].concat();
        let again = Shape::of(&dressed).map(|shape| shape.sha1());
        // What is not finished, or too long, may be so in another way now.
        if let Ok(shape) = &shape {
            assert_eq!(again.as_ref(), Ok(shape), "behind {before:?}, before {after:?}");
        }
    }
    // The first line of a script may be for Redis, and is then not Lua.
    if !text.starts_with(b"#") && shape.as_ref().is_err_and(is_no_lua) {
        assert!(!is_lua(text), "{shape:?}, but Lua takes it");
    }
}

/// Whether the text cannot be Lua at all; the other reasons only say that nobody recognises it.
fn is_no_lua(why: &NotAShape) -> bool {
    match why {
        NotAShape::AmbiguousCall
        | NotAShape::Unbalanced
        | NotAShape::UnexpectedByte
        | NotAShape::UnfinishedText => true,
        NotAShape::Foreign | NotAShape::TooLong => false,
    }
}

/// Whether the interpreter can compile it.
fn is_lua(text: &[u8]) -> bool {
    // Built once: its cache of scripts is emptied each time.
    thread_local! {
        static SERVER: std::cell::RefCell<Bare> = std::cell::RefCell::new(Bare::new());
    }
    SERVER.with_borrow_mut(|server| {
        server.send(&request(&["SCRIPT", "FLUSH"]));
        server.send(&request::<&[u8]>(&[b"SCRIPT", b"LOAD", text])).starts_with(b"$40\r\n")
    })
}
