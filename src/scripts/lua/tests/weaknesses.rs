//! Published weaknesses of Lua 5.1 and of Redis' Lua, one test each: `src/security.md` lists them.

use super::*;

/// Runs a script that must be over, in whatever way, after few polls.
fn ends(text: &str) -> Result<String, String> {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let result = run_watched(&mut interpreter, text, After::polls(1_000));
    assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"), "after {text}");
    result
}

#[test]
fn unpack_refuses_more_values_than_the_stack_has() {
    for (first, last) in [
        ("-2", "2147483647"),
        ("-2147483648", "2147483647"),
        ("0", "2147483647"),
        ("-2147483647", "10"),
        ("1", "1e300"),
        ("-1e300", "1"),
    ] {
        let error = ends(&format!("return {{unpack({{1, 2, 3}}, {first}, {last})}}")).unwrap_err();
        assert!(error.contains("too many results to unpack"), "{first} {last}: {error}");
    }
    let text = "return {unpack({1, 2, 3}, 2147483646, 2147483647), unpack({1, 2, 3}, 2)}";
    assert_eq!(ends(text).as_deref(), Ok("*0\r\n"));
    assert_eq!(ends("return {unpack({1, 2, 3}, 2)}").as_deref(), Ok("*2\r\n:2\r\n:3\r\n"));
    assert_eq!(ends("return {unpack({1, 2, 3}, 3, 1)}").as_deref(), Ok("*0\r\n"));
}

#[test]
fn insert_refuses_positions_outside_the_list() {
    for position in ["-2147483648", "-1e300", "0", "0.5", "2147483648", "1e300", "0/0"] {
        let text = format!("table.insert({{1, 2, 3}}, {position}, 1)");
        let error = ends(&text).unwrap_err();
        assert!(error.contains("position out of bounds"), "{position}: {error}");
    }
    let text = "local t = {1, 2, 3} table.insert(t, 4, 4) table.insert(t, 1, 0) return t";
    assert_eq!(ends(text).as_deref(), Ok("*5\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n"));
}
