//! Locks that an agent holds, and what it is told of them.

use serde_json::{Value, json};

use super::host::{Host, server};
use crate::support::binary::{Running, ended, redlatch};

const MINUTE: u64 = 60_000;

/// The output of `redlatch WORDS`, asked of a server.
fn shell(server: &Running, words: &str) -> String {
    let (code, said, told) = ended(redlatch().args(words.split(' ')).args(["--url", &server.url()]));
    assert_eq!(code, Some(0), "{words}: {told}");
    said
}

#[test]
fn two_agents_exclude_each_other_and_a_refusal_says_who_why_and_until_when() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "claude-code"), Host::of(&server, "cursor"));
    let taken = one.call("take", json!({ "key": "db", "why": "a new index", "meta": { "ci": "7" } }));
    let owner = taken.value["owner"].as_str().unwrap().to_owned();
    assert!(owner.starts_with("claude-code-") && owner.len() == 20, "{owner}");
    assert!(taken.text.starts_with(&format!("db is taken\n  owner:  {owner}\n  lease:  ")), "{}", taken.text);
    assert_eq!([&taken.value["taken"], &taken.value["token"]], [&json!(true), &json!(1)]);
    assert_eq!(taken.value["lease"], 600_000, "the default");
    server.pass(MINUTE);

    let refused = other.call("take", json!({ "key": "db" }));
    assert!(refused.is_error, "{refused:?}");
    let lines: Vec<&str> = refused.text.lines().collect();
    let holder = format!("  holder: {owner}");
    assert_eq!(lines[..3], ["not taken: db is held", "  key:    db", &holder]);
    for part in [
        "\n  agent: claude-code 1.0\n", "\n  reason: a new index\n", "\n  ci: 7\n", ", for 1 min 0 s\n",
        "\n  lease:  9 min 0 s left, until 20", "\n  token:  1\n", "\n  queue:  0 waiting",
    ] {
        assert!(refused.text.contains(part), "{part:?}: {}", refused.text);
    }
    assert!(!refused.text.contains("force"), "an agent is not told to break locks: {}", refused.text);
    assert_eq!(refused.value["taken"], false);
    assert_eq!(refused.value["held"]["holders"][0]["owner"], owner.as_str());

    let renewed = one.done("renew", json!({ "key": "db", "lease": "20m", "token": 1 }));
    assert_eq!([&renewed["token"], &renewed["lease"]], [&json!(1), &json!(20 * MINUTE)]);
    assert!(other.call("release", json!({ "key": "db" })).is_error);
    assert_eq!(one.call("release", json!({ "key": "db" })).text, "db is released");
    assert_eq!(other.done("take", json!({ "key": "db" }))["token"], 2);
    let lost = one.call("renew", json!({ "key": "db" }));
    assert!(
        lost.is_error && lost.text.starts_with(&format!("not renewed: {owner} does not hold db\n")),
        "{lost:?}"
    );
    assert_eq!(lost.value["renewed"], false);
}

#[test]
fn a_lock_outlives_the_process_and_is_released_by_the_name_of_its_owner() {
    let server = server();
    let mut host = Host::of(&server, "agent");
    let owner =
        host.done("take", json!({ "key": "db", "lease": "1h" }))["owner"].as_str().unwrap().to_owned();
    assert_eq!(host.close(), (Some(0), String::new()));
    assert!(shell(&server, "who db").contains(&owner));
    assert_eq!(shell(&server, &format!("release db --as {owner}")), "db is released\n");
}

#[test]
fn a_name_that_is_given_holds_its_locks_in_the_next_process() {
    let server = server();
    let start = || Host::begun(redlatch().args(["mcp", "--as", "ci-7", "--url", &server.url()]), "x");
    let taken = start().done("take", json!({ "key": "db" }));
    assert_eq!([&taken["owner"], &taken["token"]], [&json!("ci-7"), &json!(1)]);
    let mut next = start();
    assert_eq!(next.done("list", json!({ "mine": true }))["locks"][0]["key"], "db");
    assert_eq!(next.done("renew", json!({ "key": "db" }))["token"], 1);
    assert_eq!(next.done("take", json!({ "key": "db" }))["token"], 1, "the same grant");
    assert_eq!(next.done("release", json!({ "key": "db" }))["released"], true);
}

// Shows P-mcp-token.
#[test]
fn a_lock_that_another_process_has_taken_by_the_same_name_since_is_left_alone() {
    for tool in ["renew", "release"] {
        let server = server();
        let mut host = Host::begun(redlatch().args(["mcp", "--as", "ci-7", "--url", &server.url()]), "x");
        host.done("take", json!({ "key": "db", "lease": "1h" }));
        // Nothing tells this process of the loss.
        server.ask("CLIENT KILL TYPE normal SKIPME yes");
        assert_eq!(server.ask("LOCK.BREAK db TOKEN 1"), ":1\r\n");
        server.ask("LOCK.ACQUIRE db ci-7 LEASE 3600000");
        let answer = host.call(tool, json!({ "key": "db" }));
        assert!(
            answer.is_error && answer.text.contains("ci-7 does not hold db with the token 1"),
            "{answer:?}"
        );
        assert_eq!(
            server.ask("LOCK.EXTEND db ci-7 SAME TOKEN 2"),
            "*4\r\n$5\r\ntoken\r\n:2\r\n$5\r\nlease\r\n:3600000\r\n"
        );
    }
}

// Shows P-mcp-repeat-harmless.
#[test]
fn agents_of_one_connection_are_told_apart_by_the_names_that_they_say() {
    let server = server();
    let mut host = Host::of(&server, "host");
    let taken = host.done("take", json!({ "key": "db", "agent": "planner" }));
    assert!(taken["owner"].as_str().unwrap().ends_with("/planner"), "{taken}");
    let refused = host.call("take", json!({ "key": "db", "agent": "writer" }));
    assert!(refused.is_error && refused.text.contains("/planner"), "{refused:?}");
    let again = host.call("take", json!({ "key": "db", "agent": "planner" }));
    assert!(again.text.ends_with("This owner held it already: its lease begins anew."), "{again:?}");

    let waits = host.begin("take", json!({ "key": "db", "agent": "writer", "wait": "1h" }));
    host.waits();
    let second = host.call("take", json!({ "key": "db", "agent": "writer" }));
    assert!(second.is_error && second.text.contains("is taking db already, by another call"), "{second:?}");
    let among_others = host.call("take", json!({ "one_of": ["free", "db"], "agent": "writer" }));
    assert!(among_others.text.contains("is taking db already, by another call"), "{among_others:?}");
    host.done("release", json!({ "key": "db", "agent": "planner" }));
    assert!(host.end(waits).value["owner"].as_str().unwrap().ends_with("/writer"));
}

#[test]
fn a_lock_is_shared_and_a_semaphore_counted() {
    let server = server();
    let mut hosts: Vec<Host> = (0..3).map(|number| Host::of(&server, &format!("agent{number}"))).collect();
    for host in &mut hosts[..2] {
        host.done("take", json!({ "key": "docs", "shared": true }));
        host.done("take", json!({ "key": "pool", "permits": 1, "of": 2 }));
    }
    assert!(hosts[2].call("take", json!({ "key": "docs" })).is_error);
    let refused = hosts[2].call("take", json!({ "key": "pool", "permits": 1, "of": 2 }));
    assert!(refused.text.contains("1 of 2 permits"), "{refused:?}");
    hosts[0].done("release", json!({ "key": "pool" }));
    hosts[2].done("take", json!({ "key": "pool", "permits": 1, "of": 2 }));
}

#[test]
fn one_of_several_is_taken_told_and_given_back_by_its_key() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    let accounts = json!({ "one_of": ["account:1", "account:2", "account:1"] });
    assert_eq!(one.done("take", accounts.clone())["key"], "account:1");
    let again = one.call("take", accounts.clone());
    assert!(again.text.starts_with("account:1 is taken\n"), "{again:?}");
    assert!(again.text.ends_with("This owner held it already: its lease begins anew."), "{again:?}");
    let second = other.done("take", accounts.clone());
    assert_eq!((&second["key"], &second["token"]), (&json!("account:2"), &json!(2)));
    let mut third = Host::of(&server, "third");
    let refused = third.call("take", accounts.clone());
    assert!(refused.is_error && refused.value.get("key").is_none(), "{refused:?}");
    assert!(
        refused.text.starts_with("not taken: none of 2 locks is free: account:1 is held\n"),
        "{refused:?}"
    );

    server.ask("LOCK.BREAK account:2 TOKEN 2");
    let renewed = other.call("renew", json!({ "key": "account:2" }));
    assert!(renewed.is_error && renewed.text.contains("does not hold account:2"), "{renewed:?}");
    for (arguments, fault) in [
        (json!({}), "key: is missing, and so is one_of"),
        (json!({ "key": "a", "one_of": ["b"] }), "one_of: excludes key"),
        (json!({ "one_of": ["b"], "why": "tests" }), "one_of: excludes why and meta"),
    ] {
        let refused = third.call("take", arguments);
        assert!(refused.is_error && refused.text.contains(fault), "{refused:?}");
    }
}

#[test]
fn what_there_is_can_be_asked_for() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    assert_eq!(one.call("list", json!({})).text, "no lock is held");
    assert_eq!(one.call("who", json!({ "key": "db" })).text, "db is free");
    for number in 0..103 {
        server.ask(&format!("LOCK.ACQUIRE many:{number:03} somebody LEASE 3600000"));
    }
    let owner = one.done("take", json!({ "key": "db" }))["owner"].as_str().unwrap().to_owned();
    let all = one.call("list", json!({}));
    assert_eq!((all.value["locks"].as_array().unwrap().len(), &all.value["more"]), (100, &json!(4)));
    assert!(all.text.ends_with("and 4 more: ask with a pattern"), "{}", all.text);
    let mine = one.call("list", json!({ "mine": true }));
    assert_eq!(mine.value["locks"].as_array().unwrap().len(), 1);
    assert!(mine.text.starts_with("LOCK ") && mine.text.contains(&owner), "{}", mine.text);
    assert!(other.call("list", json!({ "mine": true })).text.ends_with(" holds no lock"));
    assert_eq!(other.done("list", json!({ "pattern": "d*" }))["locks"][0]["key"], "db");

    other.begin("take", json!({ "key": "db", "wait": "1h" }));
    other.waits();
    let who = one.call("who", json!({ "key": "db" }));
    assert!(who.text.contains("\n  queue:  1 waiting\n  waits:  other-"), "{}", who.text);
    assert_eq!((&who.value["free"], &who.value["queue"][0]["how"]), (&json!(false), &json!("queued")));
    let explained = one.call("explain", json!({ "key": "db" }));
    assert!(explained.text.starts_with("held by you"), "{}", explained.text);
    assert_eq!(explained.value["sentences"][0].as_str().unwrap(), explained.text.lines().next().unwrap());
    let waited = one.call("wait", json!({ "key": "db", "timeout": "1ms" }));
    assert!(!waited.is_error && waited.text.starts_with("db is held\n  key:"), "{waited:?}");
    assert_eq!(one.done("wait", json!({ "key": "free" }))["free"], true);
}

#[test]
fn each_answer_has_what_the_schema_of_its_tool_requires() {
    let server = server();
    let mut host = Host::of(&server, "agent");
    server.ask("LOCK.ACQUIRE taken somebody LEASE 3600000");
    let listed = host.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    assert_eq!(tools.len(), 7);
    for tool in &tools {
        for key in ["taken", "free"] {
            let name = tool["name"].as_str().unwrap();
            let arguments = match name {
                "list" => json!({}),
                "wait" => json!({ "key": key, "timeout": "0" }),
                _ => json!({ "key": key }),
            };
            let value = host.call(name, arguments).value;
            let schema = &tool["outputSchema"];
            for field in schema["required"].as_array().unwrap() {
                assert!(value.get(field.as_str().unwrap()).is_some(), "{name}: no {field} in {value}");
            }
            for (field, _) in value.as_object().unwrap() {
                assert!(schema["properties"].get(field).is_some(), "{name}: {field} is not in the schema");
            }
        }
    }
}

#[test]
fn an_agent_is_told_that_a_lock_is_lost_and_that_somebody_waits() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    let owner =
        one.done("take", json!({ "key": "db", "lease": "10m" }))["owner"].as_str().unwrap().to_owned();
    one.done("take", json!({ "key": "db", "lease": "10m" }));
    other.begin("take", json!({ "key": "db", "wait": "1h" }));
    let message = one.notified("notifications/message");
    assert_eq!((&message["level"], &message["logger"]), (&json!("notice"), &json!("redlatch")));
    let told = &message["data"];
    assert_eq!(
        [&told["event"], &told["key"], &told["token"]],
        [&json!("lock-contended"), &json!("db"), &json!(1)]
    );
    let who = one.call("who", json!({ "key": "free" }));
    let contended = format!("contended: somebody waits for db, which {owner} holds");
    assert_eq!(who.text, format!("db is free\n{contended}").replacen("db", "free", 1));
    assert_eq!(who.value["notices"], json!([contended]));
    assert_eq!(one.done("who", json!({ "key": "free" }))["notices"], Value::Null, "it is told once");

    server.pass(10 * MINUTE + 1);
    let message = one.notified("notifications/message");
    assert_eq!((&message["level"], &message["data"]["event"]), (&json!("warning"), &json!("lock-lost")));
    let lost = one.call("renew", json!({ "key": "db" }));
    let said = format!("lost: {owner} holds db no longer: its lease has ended");
    assert!(lost.is_error && lost.text.ends_with(&said), "{}", lost.text);

    let token = one.done("take", json!({ "key": "b" }))["token"].clone();
    shell(&server, &format!("break b --token {token} --reason moved"));
    let message = one.notified("notifications/message");
    let text = message["data"]["text"].as_str().unwrap();
    assert!(text.contains("it was broken by an operator") && text.ends_with(": moved"), "{text}");
}

#[test]
fn a_host_that_wants_no_messages_gets_none_and_the_model_is_told_all_the_same() {
    let server = server();
    let mut host = Host::of(&server, "one");
    host.request("logging/setLevel", json!({ "level": "error" }));
    let token = host.done("take", json!({ "key": "db" }))["token"].clone();
    shell(&server, &format!("break db --token {token}"));
    // The process hears of it a moment later.
    let mut text = String::new();
    while !text.contains("\nlost: ") {
        text = host.call("who", json!({ "key": "db" })).text;
    }
    assert_eq!(host.close(), (Some(0), String::new()), "nothing else was said");
}

#[test]
fn without_a_server_the_end_of_a_lease_is_told_all_the_same() {
    let server = Running::start(redlatch().args(["--port", "auto"]));
    let mut host = Host::of(&server, "one");
    host.done("take", json!({ "key": "db", "lease": "200ms" }));
    server.kill();
    let message = host.notified("notifications/message");
    assert!(message["data"]["text"].as_str().unwrap().ends_with("its lease has ended"), "{message}");
    let failed = host.call("take", json!({ "key": "db" }));
    assert!(failed.is_error && failed.value.is_null() && failed.text.contains("refused"), "{failed:?}");
    assert_eq!(host.close().0, Some(0));
}

#[test]
fn a_client_of_the_protocol_without_a_beginning_is_served_too() {
    let server = server();
    let mut host = Host::started(redlatch().args(["mcp", "--url", &server.url()]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "new", "version": "3" },
    });
    let call = |tool: &str| json!({ "name": tool, "arguments": { "key": "db" }, "_meta": meta });
    let taken = host.request("tools/call", call("take"));
    let owner = taken["result"]["structuredContent"]["owner"].as_str().unwrap_or_else(|| panic!("{taken}"));
    assert!(owner.starts_with("new-"), "{owner}");
    shell(&server, "break db --token 1");
    assert_eq!(shell(&server, "ls").lines().count(), 1);
    let released = host.request("tools/call", call("release"));
    assert_eq!(released["result"]["isError"], true);
    let (code, rest) = host.close();
    assert!(code == Some(0) && !rest.contains("notifications/message"), "it asks for no messages: {rest}");
}
