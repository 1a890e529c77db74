//! `POST /api/locks/KEY`: a program that speaks HTTP only takes, renews and releases a lock, and waits for it.

use std::net::Shutdown;
use std::process::Command;

use redlatch::Server;
use serde_json::{Value, json};

use super::{post, server, told, value};
use crate::support::binary::Directory;
use crate::support::contend::contend;
use crate::support::http::{HttpClient, HttpReply, get};
use crate::support::stream::Peer;
use crate::support::waits::wait_until;

/// A server on which requests by HTTP may change something, without a login.
fn open() -> Server {
    server(&[("http-admin", "yes")])
}

/// The body that takes a lock for an hour.
fn take(owner: &str) -> Value {
    json!({ "action": "take", "owner": owner, "lease_ms": 3_600_000 })
}

/// The body that takes a lock for an hour, or waits for it.
fn wait(owner: &str) -> Value {
    json!({ "action": "take", "owner": owner, "lease_ms": 3_600_000, "wait_ms": 600_000 })
}

fn renew(owner: &str) -> Value {
    json!({ "action": "renew", "owner": owner })
}

fn release(owner: &str) -> Value {
    json!({ "action": "release", "owner": owner })
}

fn ask(server: &Server, key: &str, body: &Value) -> HttpReply {
    post(server, &format!("/api/locks/{key}"), "", &body.to_string())
}

/// The answer to a request that must succeed.
fn done(server: &Server, key: &str, body: &Value) -> Value {
    let reply = ask(server, key, body);
    assert_eq!(reply.status, 200, "{body}: {reply:?}");
    value(&reply)
}

/// The answer to a request that must be refused with 409.
fn refused(server: &Server, key: &str, body: &Value) -> Value {
    let reply = ask(server, key, body);
    assert_eq!(reply.status, 409, "{body}: {reply:?}");
    value(&reply)
}

/// Sends a request on a connection that is kept.
fn send(client: &mut HttpClient, key: &str, headers: &str, body: &Value) {
    client.post(&format!("/api/locks/{key}"), headers, &body.to_string());
}

/// Sends a request that waits for the lock, of which so many wait then.
fn begin(server: &Server, key: &str, body: &Value, waiting: u64) -> HttpClient {
    let mut client = HttpClient::to(server.http_addr());
    send(&mut client, key, "", body);
    until_waiting(server, key, waiting);
    client
}

/// Asks until so many wait for the lock.
fn until_waiting(server: &Server, key: &str, waiting: u64) {
    let asked = format!("/api/lock?key={key}");
    wait_until("so many wait", || told(server, &asked)["waiting"] == waiting);
}

/// The owner of a lock, and its token; null if nobody holds it.
fn holder(server: &Server, key: &str) -> [Value; 2] {
    let who = told(server, &format!("/api/lock?key={key}"))["who"]["holders"][0].clone();
    ["owner", "token"].map(|name| who[name].clone())
}

#[test]
fn one_of_several_is_taken_and_named_in_the_answer() {
    let server = open();
    let any = |owner: &str| {
        let mut body = take(owner);
        body["any_of"] = json!(["sim:2", "sim:3"]);
        body
    };
    assert_eq!(done(&server, "sim:1", &any("a"))["key"], "sim:1");
    let second = done(&server, "sim:1", &any("b"));
    assert_eq!(
        [&second["key"], &second["token"], &second["lease"]],
        [&json!("sim:2"), &json!(2), &json!(3_600_000)]
    );
    assert_eq!(done(&server, "sim:1", &any("b"))["key"], "sim:2", "it is asked again");
    assert_eq!(done(&server, "sim:1", &any("c"))["token"], 3);
    let all = refused(&server, "sim:1", &any("d"));
    assert_eq!([&all["taken"], &all["error"]], [&json!(false), &json!("not taken: none of 3 locks is free")]);
    assert_eq!([&all["key"], &all["held"]["holders"][0]["owner"]], [&json!("sim:1"), &json!("a")]);

    let mut body = any("e");
    body["wait_ms"] = json!(600_000);
    let mut waits = begin(&server, "sim:1", &body, 1);
    until_waiting(&server, "sim:3", 1);
    done(&server, "sim:3", &release("c"));
    assert_eq!(value(&waits.reply(true))["key"], "sim:3");
    until_waiting(&server, "sim:1", 0);
    for owner in ["f", "g"] {
        let body = json!({ "action": "take", "owner": owner, "any_of": ["gpu:1"], "permits": 1, "of": 2 });
        assert_eq!(done(&server, "gpu:0", &body)["key"], "gpu:0", "each key has these permits");
    }
}

#[test]
fn a_lock_is_taken_renewed_and_released_by_three_requests() {
    let server = open();
    let before = told(&server, "/api/lock?key=lock:a")["now"].as_u64().unwrap();
    let mut taken = done(&server, "lock:a", &take("job-1"));
    let until = taken["until"].take().as_u64().unwrap();
    let after = told(&server, "/api/lock?key=lock:a")["now"].as_u64().unwrap();
    assert!((before + 3_600_000..=after + 3_600_000).contains(&until), "{before} {until} {after}");
    let expected = json!({
        "taken": true, "key": "lock:a", "owner": "job-1", "token": 1, "lease": 3_600_000, "until": null, "waited": 0,
    });
    assert_eq!(taken, expected);
    assert_eq!(server.keys().get("lock:a").as_deref(), Some(&b"job-1"[..]));

    let renewed = done(&server, "lock:a", &renew("job-1"));
    assert_eq!(
        [&renewed["renewed"], &renewed["token"], &renewed["lease"]],
        [&json!(true), &json!(1), &json!(3_600_000)]
    );
    assert!(renewed["until"].as_u64().unwrap() >= until, "{renewed}");
    let shorter = json!({ "action": "renew", "owner": "job-1", "lease_ms": 60_000 });
    assert_eq!(done(&server, "lock:a", &shorter)["lease"], 60_000);
    assert_eq!(done(&server, "lock:a", &renew("job-1"))["lease"], 60_000, "as long as it was");

    let released = done(&server, "lock:a", &release("job-1"));
    assert_eq!(released, json!({ "released": true, "key": "lock:a", "owner": "job-1" }));
    assert!(server.keys().get("lock:a").is_none());
}

#[test]
fn without_a_lease_it_is_that_of_the_setting() {
    let server = server(&[("http-admin", "yes"), ("lock-lease", "7000")]);
    let taken = done(&server, "lock:a", &json!({ "action": "take", "owner": "me" }));
    assert_eq!(taken["lease"], 7_000);
}

#[test]
fn who_is_refused_is_told_who_holds_the_lock_and_how_many_wait() {
    let server = open();
    let mut other = Peer::to(server.addr());
    assert_eq!(other.ask(b"LOCK.ACQUIRE lock:a other LEASE 60000 META reason tests\r\n"), "*6");
    let waiter = Peer::to(server.addr());
    waiter.send(b"LOCK.ACQUIRE lock:a third WAIT 60000\r\n");
    until_waiting(&server, "lock:a", 1);

    let refused = refused(&server, "lock:a", &take("me"));
    assert_eq!((&refused["taken"], &refused["error"]), (&json!(false), &json!("not taken: lock:a is held")));
    let held = &refused["held"];
    assert_eq!((&held["kind"], &held["waiters"]), (&json!("exclusive"), &json!(1)));
    let holder = &held["holders"][0];
    assert_eq!((&holder["owner"], &holder["meta"]), (&json!("other"), &json!({ "reason": "tests" })));
    assert!(holder["client"]["addr"].is_string(), "{holder}");
    for name in ["since", "held", "left", "token"] {
        assert!(holder[name].is_u64(), "{name}: {holder}");
    }
}

// Shows P-repeat-harmless.
#[test]
fn the_same_owner_gets_the_same_grant_again() {
    let server = open();
    assert_eq!(done(&server, "lock:a", &take("me"))["token"], 1);
    for body in [take("me"), wait("me")] {
        let again = done(&server, "lock:a", &body);
        assert_eq!(
            [&again["taken"], &again["token"], &again["waited"]],
            [&json!(true), &json!(1), &json!(0)]
        );
    }
    let longer = json!({ "action": "take", "owner": "me", "lease_ms": 7_200_000 });
    assert_eq!(done(&server, "lock:a", &longer)["lease"], 7_200_000, "its lease begins anew");
    assert_eq!(holder(&server, "lock:a"), [json!("me"), json!(1)]);
    let mut shared = take("me");
    shared["shared"] = true.into();
    let error = refused(&server, "lock:a", &shared)["error"].clone();
    assert!(error.as_str().is_some_and(|error| error.contains("in another way")), "{error}");
}

#[test]
fn a_release_is_repeated_without_harm_and_hits_no_other_hold() {
    let server = open();
    done(&server, "lock:a", &take("me"));
    assert_eq!(done(&server, "lock:a", &release("other"))["released"], false);
    let by_token = |token: u64| json!({ "action": "release", "owner": "me", "token": token });
    assert_eq!(done(&server, "lock:a", &by_token(2))["released"], false);
    assert_eq!(holder(&server, "lock:a"), [json!("me"), json!(1)]);
    assert_eq!(done(&server, "lock:a", &by_token(1))["released"], true);
    done(&server, "lock:a", &take("me"));
    let again = done(&server, "lock:a", &by_token(1));
    assert_eq!(again["released"], false, "a later hold of the same owner stays");
    assert!(again["explained"][0].as_str().is_some_and(|told| told.starts_with("held by you ")), "{again}");
    assert_eq!(done(&server, "lock:a", &release("me"))["released"], true);
    assert_eq!(done(&server, "lock:a", &release("me"))["released"], false);
}

#[test]
fn who_has_lost_the_lock_is_told_when_it_renews_and_when_it_releases() {
    let server = open();
    done(&server, "lock:a", &json!({ "action": "take", "owner": "me", "lease_ms": 1 }));
    wait_until("the lock has another owner", || holder(&server, "lock:a")[0] != "me");
    done(&server, "lock:a", &take("other"));
    let lost = refused(&server, "lock:a", &renew("me"));
    assert_eq!(
        (&lost["renewed"], &lost["error"]),
        (&json!(false), &json!("not renewed: me does not hold lock:a"))
    );
    let explained = |answer: &Value| {
        let told =
            answer["explained"].as_array().unwrap().iter().map(|told| told.as_str().unwrap().to_owned());
        told.collect::<Vec<_>>().join("\n")
    };
    let said = explained(&lost);
    assert!(said.starts_with("held by other") && said.contains("lost: the lease of 1 ms ended"), "{said}");
    assert!(said.contains("before your LOCK.EXTEND; next holder other"), "{said}");
    let released = done(&server, "lock:a", &release("me"));
    assert!(released["released"] == false && explained(&released).contains("lost: the lease"), "{released}");

    let by_token =
        |token: u64| json!({ "action": "renew", "owner": "other", "token": token, "lease_ms": 60_000 });
    let wrong = refused(&server, "lock:a", &by_token(1));
    assert_eq!(wrong["error"], "not renewed: other does not hold lock:a with the token 1");
    assert_eq!(done(&server, "lock:a", &by_token(2))["lease"], 60_000);
    assert_eq!(refused(&server, "lock:b", &renew("me"))["renewed"], false, "nobody has held it");
}

#[test]
fn requests_that_wait_are_served_in_order_with_other_clients() {
    let server = open();
    done(&server, "lock:a", &take("first"));
    let mut second = begin(&server, "lock:a", &wait("second"), 1);
    let mut third = Peer::to(server.addr());
    third.send(b"LOCK.ACQUIRE lock:a third LEASE 3600000 WAIT 600000\r\n");
    until_waiting(&server, "lock:a", 2);
    let mut fourth = begin(&server, "lock:a", &wait("fourth"), 3);
    let listed = told(&server, "/api/clients");
    let waits = |client: &&Value| client["lib-name"] == "http" && client["waits-for"] == "lock:a";
    let clients = listed["clients"].as_array().unwrap();
    assert_eq!(clients.iter().filter(waits).count(), 2, "{listed}");

    assert_eq!(done(&server, "lock:a", &release("first"))["released"], true);
    let granted = value(&second.reply(true));
    assert_eq!((&granted["taken"], &granted["token"]), (&json!(true), &json!(2)));
    assert!(granted["waited"].is_u64(), "{granted}");
    until_waiting(&server, "lock:a", 2);
    assert_eq!(holder(&server, "lock:a"), [json!("second"), json!(2)]);
    assert_eq!(done(&server, "lock:a", &release("second"))["released"], true);
    assert_eq!(third.line(), "*6");
    assert_eq!(holder(&server, "lock:a"), [json!("third"), json!(3)]);
    // A connection that has waited goes on with other requests.
    send(&mut second, "lock:a", "", &release("third"));
    assert_eq!(value(&second.reply(true))["released"], true);
    assert_eq!(value(&fourth.reply(true))["token"], 4);
}

#[test]
fn a_wait_that_ends_is_refused() {
    let server = open();
    done(&server, "lock:a", &take("other"));
    let body = json!({ "action": "take", "owner": "me", "wait_ms": 1 });
    assert_eq!(refused(&server, "lock:a", &body)["held"]["holders"][0]["owner"], "other");
    until_waiting(&server, "lock:a", 0);
}

#[test]
fn who_goes_away_leaves_the_queue() {
    let server = open();
    done(&server, "lock:a", &take("other"));
    let gone = begin(&server, "lock:a", &wait("me"), 1);
    drop(gone);
    until_waiting(&server, "lock:a", 0);
    let closed = begin(&server, "lock:a", &wait("me"), 1);
    closed.0.get_ref().shutdown(Shutdown::Write).unwrap();
    until_waiting(&server, "lock:a", 0);
    done(&server, "lock:a", &release("other"));
    assert!(server.keys().get("lock:a").is_none());
    server.assert_laws();
}

#[test]
fn who_goes_away_while_it_is_granted_the_lock_finds_it_again_by_its_owner() {
    let server = open();
    for round in 0..ROUNDS {
        let owner = format!("me-{round}");
        done(&server, "lock:a", &take("other"));
        let gone = begin(&server, "lock:a", &wait(&owner), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(gone));
            done(&server, "lock:a", &release("other"));
        });
        until_waiting(&server, "lock:a", 0);
        let [held_by, token] = holder(&server, "lock:a");
        let again = done(&server, "lock:a", &take(&owner));
        // A grant that was not sent is given back, maybe after this look: then the owner has a new one.
        assert!(held_by.is_null() || held_by == *owner, "{held_by}: {again}");
        assert!(again["token"].as_u64() >= token.as_u64(), "{token}: {again}");
        assert_eq!(done(&server, "lock:a", &release(&owner))["released"], true);
    }
}

#[test]
fn fifty_programs_hold_the_lock_one_at_a_time_and_their_tokens_rise() {
    let server = open();
    contend(CONTENDERS, TURNS, |contender, grants| {
        let mut client = HttpClient::to(server.http_addr());
        let owner = format!("program {contender}");
        let mut said = |body: &Value| {
            send(&mut client, "lock:a", "", body);
            let reply = client.reply(true);
            assert_eq!(reply.status, 200, "{reply:?}");
            value(&reply)
        };
        for _ in 0..TURNS {
            let taken = said(&wait(&owner));
            let token = grants.hold(|| taken["token"].as_u64().unwrap());
            let released = said(&json!({ "action": "release", "owner": owner, "token": token }));
            assert_eq!(released["released"], true);
        }
    });
}

#[test]
fn shared_locks_and_permits_are_taken_and_a_key_that_is_no_lock_is_not() {
    let server = open();
    let taken = |key: &str, owner: &str, more: Value| {
        let mut body = take(owner);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = ask(&server, key, &body);
        (reply.status, value(&reply))
    };
    assert_eq!(taken("shared", "one", json!({ "shared": true })).0, 200);
    assert_eq!(taken("shared", "two", json!({ "shared": true })).0, 200);
    assert_eq!(taken("shared", "three", json!({})).0, 409);
    assert_eq!(taken("permits", "one", json!({ "permits": 2, "of": 3 })).0, 200);
    let (status, answer) = taken("permits", "two", json!({ "permits": 2, "of": 3 }));
    assert_eq!((status, &answer["held"]["limit"]), (409, &json!(3)));
    let (status, answer) = taken("permits", "two", json!({ "permits": 1, "of": 4 }));
    assert_eq!((status, &answer), (409, &json!({ "error": "ERR the lock has 3 permits, not 4" })));
    assert_eq!(done(&server, "permits", &renew("one"))["lease"], 3_600_000);

    let mut peer = Peer::to(server.addr());
    assert_eq!(peer.ask(b"RPUSH list x\r\n"), ":1");
    let (status, answer) = taken("list", "one", json!({}));
    assert!(status == 409 && answer["error"].as_str().unwrap().starts_with("WRONGTYPE "), "{answer}");
    assert_eq!(peer.ask(b"SET string x\r\n"), "+OK");
    let (status, answer) = taken("string", "one", json!({}));
    assert_eq!(
        (status, &answer["held"]["kind"], &answer["held"]["type"]),
        (409, &json!("none"), &json!("string"))
    );
}

#[test]
fn owners_that_would_wait_for_each_other_are_told() {
    let server = open();
    done(&server, "lock:a", &take("one"));
    done(&server, "lock:b", &take("two"));
    let mut one = begin(&server, "lock:b", &wait("one"), 1);
    let error = refused(&server, "lock:a", &wait("two"))["error"].clone();
    assert!(error.as_str().unwrap().starts_with("DEADLOCK lock:"), "{error}");
    done(&server, "lock:b", &release("two"));
    assert_eq!(one.reply(true).status, 200);
}

#[test]
fn keys_and_owners_may_have_any_bytes() {
    let server = open();
    let body = json!({ "action": "take", "owner_base64": "bWX+" });
    let taken = done(&server, "lock/%FF%00+a%2F", &body);
    assert_eq!(
        (&taken["key"], &taken["key_base64"]),
        (&json!(r"lock/\xff\x00+a/"), &json!("bG9jay//ACthLw=="))
    );
    assert_eq!((&taken["owner"], &taken["owner_base64"]), (&json!(r"me\xfe"), &json!("bWX+")));
    assert_eq!(server.keys().get(b"lock/\xff\x00+a/").as_deref(), Some(&b"me\xfe"[..]));
    let again = json!({ "action": "renew", "owner_base64": taken["owner_base64"], "token": 1 });
    assert_eq!(done(&server, "lock/%ff%00+a/", &again)["renewed"], true);
}

/// "Authorization: Basic" for `default:secret`, `worker:shovel` and `operator:spanner`.
const LOGINS: [&str; 3] = ["ZGVmYXVsdDpzZWNyZXQ=", "d29ya2VyOnNob3ZlbA==", "b3BlcmF0b3I6c3Bhbm5lcg=="];

fn basic(login: &str) -> String {
    format!("Authorization: Basic {login}\r\n")
}

#[test]
fn nobody_holds_a_lock_without_a_login_or_from_another_site() {
    let locked = Server::builder()
        .set("http-port", "auto")
        .set("http-admin", "yes")
        .set("http-token", "open sesame")
        .password("secret")
        .user("worker", ["on", ">shovel", "~other:*", "+@all"])
        .start_blocking()
        .unwrap();
    let mut peer = Peer::to(locked.addr());
    assert_eq!(peer.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(peer.ask(b"SET lock:b 0WNER NX PX 60000\r\n"), "+OK");
    let [default, worker, _] = LOGINS.map(basic);
    let evil = format!("{default}Origin: http://evil.example\r\n");
    let site = format!("{default}Sec-Fetch-Site: cross-site\r\n");
    for action in [take("me"), renew("me"), release("0WNER"), wait("me")] {
        let wrong = "Authorization: Bearer open\r\n";
        for (headers, status) in [("", 401), (wrong, 401), (&*worker, 403), (&*evil, 403), (&*site, 403)] {
            for key in ["lock:a", "lock:b"] {
                let reply = post(&locked, &format!("/api/locks/{key}"), headers, &action.to_string());
                assert_eq!(reply.status, status, "{headers}: {reply:?}");
                assert!(!reply.body.contains("0WNER"), "{reply:?}");
            }
        }
        let mut rebound = HttpClient::to(locked.http_addr());
        let body = action.to_string();
        let head = format!("POST /api/locks/lock:a HTTP/1.1\r\nHost: evil.example\r\n{default}");
        rebound.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        assert_eq!(rebound.reply(true).status, 421);
    }
    assert!(locked.keys().get("lock:a").is_none() && locked.keys().get("lock:b").is_some());
    for headers in [&*default, "Authorization: Bearer open sesame\r\n"] {
        assert_eq!(post(&locked, "/api/locks/lock:a", headers, &take("me").to_string()).status, 200);
    }

    let closed = server(&[]);
    let reply = ask(&closed, "lock:a", &take("me"));
    assert!(reply.status == 403 && reply.body.contains("http-admin yes"), "{reply:?}");
    assert!(closed.keys().get("lock:a").is_none());
}

#[test]
fn a_user_of_some_keys_holds_those_locks_and_sees_no_others() {
    let server = Server::builder()
        .set("http-port", "auto")
        .set("http-admin", "yes")
        .password("secret")
        .user("worker", ["on", ">shovel", "~worker:*", "+lock.acquire", "+lock.release"])
        .start_blocking()
        .unwrap();
    let [default, worker, _] = LOGINS.map(basic);
    let status = |path: &str, login: &str, body: &Value| post(&server, path, login, &body.to_string()).status;
    let (own, other) = ("/api/locks/worker:a", "/api/locks/lock:a");
    assert_eq!(status(own, &worker, &take("me")), 200);
    assert_eq!(status(own, &worker, &release("me")), 200);
    assert_eq!(status(own, &default, &take("somebody")), 200);
    // It may not ask who holds the lock.
    let refused = post(&server, own, &worker, &take("me").to_string());
    assert_eq!((refused.status, &value(&refused)["held"]), (409, &Value::Null), "{refused:?}");
    for forbidden in [take("me"), wait("me"), renew("me"), release("me")] {
        assert_eq!(status(other, &worker, &forbidden), 403);
    }
    assert_eq!(status(own, &worker, &renew("me")), 403, "a command that it lacks");
    // What has every lock is for users with all permissions.
    let mut client = HttpClient::to(server.http_addr());
    for path in ["/api/locks", "/api/lock?key=worker:a", "/metrics"] {
        assert_eq!(client.ask("GET", path, &worker).status, 403, "{path}");
    }
    assert_eq!(status("/api/break", &worker, &json!({ "key": "worker:a", "token": 2 })), 403);
    assert!(server.keys().get("lock:a").is_none());
}

#[test]
fn a_user_who_is_removed_waits_no_longer() {
    let server = Server::builder()
        .set("http-port", "auto")
        .set("http-admin", "yes")
        .password("secret")
        .user("operator", ["on", ">spanner", "~*", "&*", "+@all"])
        .start_blocking()
        .unwrap();
    let mut peer = Peer::to(server.addr());
    assert_eq!(peer.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(peer.ask(b"SET lock:a other NX PX 60000\r\n"), "+OK");
    let mut waits = HttpClient::to(server.http_addr());
    send(&mut waits, "lock:a", &basic(LOGINS[2]), &wait("me"));
    wait_until("somebody waits", || peer.ask(b"LOCK.WAITERS lock:a\r\n") != "*0");
    // The rest of that answer is not read.
    let mut peer = Peer::to(server.addr());
    assert_eq!(peer.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(peer.ask(b"ACL DELUSER operator\r\n"), ":1");
    let reply = waits.reply(true);
    assert!(reply.status == 503 && value(&reply)["error"].is_string(), "{reply:?}");
    assert_eq!(peer.ask(b"DEL lock:a\r\n"), ":1");
    assert_eq!(peer.ask(b"EXISTS lock:a\r\n"), ":0");
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_taken() {
    let server = open();
    for (body, said) in [
        (json!({ "action": "take" }), "owner: "),
        (json!({ "action": "take", "owner": "o".repeat(1025) }), "owner: "),
        (json!({ "action": "take", "owner": "me", "why": "w".repeat(4096) }), "meta and why: "),
        (json!({ "action": "take", "owner": "me", "wait_ms": 600_001 }), "wait_ms: "),
        (json!({ "action": "take", "owner": "me", "lease": 5 }), "unknown field 'lease': "),
        (json!({ "owner": "me" }), "action: "),
        (json!("take"), "the body must be a JSON object"),
    ] {
        let reply = ask(&server, "lock:a", &body);
        assert_eq!(reply.status, 400, "{reply:?}");
        let error = value(&reply)["error"].clone();
        assert!(error.as_str().is_some_and(|error| error.starts_with(said)), "{body}: {error}");
    }
    for (body, said) in [
        (
            r#"{"action":"take","owner":"me","owner":"you"}"#,
            "the body must be a JSON object: 'owner' is given twice",
        ),
        (
            r#"{"action":"take","owner":"me","lease_ms":5,"lease_ms":null}"#,
            "the body must be a JSON object: 'lease_ms' ",
        ),
        (
            r#"{"action":"take","owner":"me","meta":{"a":"b","a":"c"}}"#,
            "the body must be a JSON object: 'a' is given twice",
        ),
        (
            r#"{"action":"take","owner":"me","owner_base64":"bWU="}"#,
            "owner: is given twice, also as owner_base64",
        ),
    ] {
        let reply = post(&server, "/api/locks/lock:a", "", body);
        let error = value(&reply)["error"].clone();
        assert!(
            reply.status == 400 && error.as_str().is_some_and(|error| error.starts_with(said)),
            "{body}: {error}"
        );
    }
    for garbage in ["", "{", "action=take&owner=me", "\u{0}\u{ff}", "[[[[[[[["] {
        assert_eq!(post(&server, "/api/locks/lock:a", "", garbage).status, 400, "{garbage}");
    }
    assert_eq!(post(&server, "/api/locks/lock:a?owner=me", "", "{}").status, 400);
    assert_eq!(post(&server, "/api/locks/", "", &take("me").to_string()).status, 400);
    assert_eq!(post(&server, "/api/locks/lock:a", "", &"x".repeat(16 * 1024 + 1)).status, 413);
    let long = ask(&server, &"k".repeat(16 * 1024), &take("me"));
    assert_eq!(long.status, 431);
    let reply = get(server.http_addr(), "/api/locks/lock:a");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(told(&server, "/api/locks?count=1000")["locks"], json!([]));
    done(&server, &"k".repeat(8 * 1024), &take(&"o".repeat(1024)));
}

#[test]
fn a_server_that_is_full_of_clients_says_so() {
    let server = server(&[("maxclients", "1"), ("maxclients-reserved", "0"), ("http-admin", "yes")]);
    let mut only = Peer::to(server.addr());
    assert_eq!(only.ask(b"PING\r\n"), "+PONG");
    let reply = ask(&server, "lock:a", &take("me"));
    let error = value(&reply)["error"].clone();
    assert!(
        reply.status == 503 && error.as_str().unwrap().contains("no place for a further client"),
        "{reply:?}"
    );
    drop(only);
    wait_until("there is a place", || ask(&server, "lock:a", &take("me")).status != 503);
    assert_eq!(holder(&server, "lock:a"), [json!("me"), json!(1)]);
}

#[test]
fn a_grant_is_in_the_journal_when_it_is_answered() {
    let (directory, copy) = (Directory::new(), Directory::new());
    let (written, copied) = (directory.path("data"), copy.path("data"));
    let server = server(&[("http-admin", "yes"), ("dir", &written)]);
    assert_eq!(done(&server, "lock:a", &take("me"))["token"], 1);
    done(&server, "lock:b", &take("me"));
    done(&server, "lock:b", &release("me"));

    // What a crash would leave.
    assert!(Command::new("cp").args(["-r", &written, &copied]).status().expect("cp").success());
    let again = self::server(&[("http-admin", "yes"), ("dir", &copied)]);
    assert_eq!(holder(&again, "lock:a"), [json!("me"), json!(1)]);
    assert!(again.keys().get("lock:b").is_none());
    assert_eq!(done(&again, "lock:a", &renew("me"))["token"], 1);
}

#[test]
fn the_examples_of_the_page_are_answered_as_it_says() {
    let (_, section) = include_str!("../../../docs/http.md").split_once("\n## Hold a lock\n").unwrap();
    let blocks = section.split("```").skip(1).step_by(2);
    let blocks: Vec<(&str, &str)> = blocks.map(|block| block.split_once('\n').unwrap()).collect();
    let server = server(&[("http-admin", "yes"), ("http-token", "secret")]);
    let mut requests = 0;
    for pair in blocks.windows(2) {
        let [("sh", request), ("json", answer)] = pair else { continue };
        assert!(request.starts_with("curl -H \"Authorization: Bearer $TOKEN\" "), "{request}");
        let (_, url) = request.split_once("http://127.0.0.1:9121").unwrap();
        let (path, body) = (url.split(' ').next().unwrap(), request.split('\'').nth(1).unwrap());
        let reply = value(&post(&server, path, "Authorization: Bearer secret\r\n", body));
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(timeless(reply), timeless(answer), "{request}");
        requests += 1;
    }
    assert_eq!(requests, 4);
}

/// An answer without what each run has of its own: times, and clients, which end a moment after their answers.
fn timeless(mut answer: Value) -> Value {
    const TIMES: [&str; 4] = ["held", "left", "since", "until"];
    match &mut answer {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = timeless(item.take())),
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_own = name == "client" || (value.is_number() && TIMES.contains(&name.as_str()));
                *value = if is_own { Value::Null } else { timeless(value.take()) };
            }
        }
        _ => {}
    }
    answer
}

const CONTENDERS: usize = 50;
const ROUNDS: usize = 50;
const TURNS: usize = 20;
