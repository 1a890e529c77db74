//! The allow-list compared with what scripts and functions of libraries really see.

use std::collections::BTreeSet;

use mlua::Function;

use super::*;

/// Every name below the globals, one on a line. `server` is `redis` under another name.
const WALK: &str = "\
local found, seen = {}, {[_G] = true, [KEYS or {}] = true, [ARGV or {}] = true}
local function walk(prefix, list)
    for name, value in pairs(list) do
        if type(value) ~= 'table' then
            found[#found + 1] = prefix .. name
        elseif not seen[value] and name ~= 'server' then
            seen[value] = true
            walk(prefix .. name .. '.', value)
        end
    end
end
walk('', _G)
for name, value in pairs(server) do assert(redis[name] == value, name) end
return table.concat(found, '\\n')
";

fn listed() -> BTreeSet<&'static str> {
    ALLOWED.iter().map(|row| row.name).filter(|name| !name.ends_with("()")).collect()
}

/// The names in a reply to [`WALK`].
fn names(reply: &str) -> BTreeSet<&str> {
    reply.split("\r\n").nth(1).unwrap_or_default().split('\n').collect()
}

#[test]
fn scripts_see_what_the_list_has_and_nothing_else() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let reply = run(&mut interpreter, WALK).unwrap();
    let mut seen = names(&reply);
    // Libraries alone have it, while they are loaded.
    assert!(seen.insert("redis.register_function"));
    assert_eq!(seen, listed());
    assert_eq!(listed().len(), ALLOWED.iter().filter(|row| !row.name.ends_with("()")).count(), "twice");
    // The metatable of strings, the only one that a script has not made.
    let text = "local m, n = getmetatable(''), 0 for name in pairs(m) do n = n + 1 end return {n, type(m.__index), \
        type(getmetatable(_G)), type(getmetatable(string)), type(getmetatable(type)), type(getmetatable(cjson.null))}";
    let expected = "*6\r\n:1\r\n$5\r\ntable\r\n$5\r\ntable\r\n$3\r\nnil\r\n$3\r\nnil\r\n$3\r\nnil\r\n";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(expected));
}

#[test]
fn functions_of_libraries_see_no_more_than_scripts() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let walk = WALK.replace("KEYS or {}", "'k'").replace("ARGV or {}", "'a'");
    let text = format!("redis.register_function('walk', function() {walk} end)");
    let reply = {
        let loaded = interpreter.load(text.as_bytes(), &mut Echo::default()).unwrap();
        let (mut out, mut echo) = (Vec::new(), Echo::default());
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let inputs = Inputs::new(&[], &[]);
        interpreter.call((loaded.id, "walk"), inputs, &mut echo, Arc::new(Asleep), &mut reply).unwrap();
        String::from_utf8(out).unwrap()
    };
    let seen = names(&reply);
    let missing: Vec<&str> = listed().difference(&seen).copied().collect();
    let expected = ["redis.breakpoint", "redis.debug", "redis.register_function", "redis.replicate_commands"];
    assert_eq!(missing, expected);
    assert!(seen.is_subset(&listed()), "{seen:?}");
}

/// How each row runs is what the list says: a function of C is one of those that Lua itself has.
#[test]
fn each_function_runs_where_the_list_says() {
    let interpreter = interpreter(MEMORY_BYTES_MAX);
    let lua = &interpreter.lua;
    let environment = &interpreter.sandbox.environment;
    for row in ALLOWED.iter().filter(|row| row.name != "redis.register_function") {
        let code = match row.name {
            "coroutine.wrap()" => "return coroutine.wrap(function() end)".to_owned(),
            "ipairs()" => "return (ipairs({}))".to_owned(),
            "pairs()" => "return (pairs({}))".to_owned(),
            "string.gmatch()" => "return string.gmatch('', '')".to_owned(),
            name => format!("return {name}"),
        };
        let seen: Value = lua.load(&code).set_environment(environment.clone()).eval().unwrap();
        let Value::Function(function) = seen else { continue };
        let code = if row.name == "pairs()" { "return next".to_owned() } else { code };
        let own: Option<Function> = lua.load(code).eval().ok();
        let runs = match function.info().what {
            "Lua" => Runs::Prelude,
            _ if own.as_ref() == Some(&function) => Runs::C,
            _ => Runs::Rust,
        };
        assert_eq!(runs, row.runs, "{}", row.name);
        if row.runs == Runs::C && row.name.starts_with("math.") {
            assert_eq!(row.numbers, "doubles: any; nothing is converted", "{}", row.name);
        }
    }
}
