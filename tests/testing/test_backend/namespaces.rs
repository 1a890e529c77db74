//! Namespaces: servers of their own behind one port.

use super::*;

#[tokio::test]
async fn nothing_of_a_namespace_is_seen_outside() {
    let server = server(1).await;
    let (mut a, mut b, mut outside) =
        (client_in(&server, "a").await, client_in(&server, "b").await, client(&server, 1).await);
    assert_eq!(a.ask(&["SET", "lock", "me", "NX"]).await, "+OK");
    for other in [&mut b, &mut outside] {
        assert_eq!(other.ask(&["SET", "lock", "me", "NX"]).await, "+OK");
        assert_eq!(number(other, &["PUBLISH", "news", "x"]).await, 0);
    }
    assert_eq!(b.ask(&["FLUSHALL"]).await, "+OK");
    assert_eq!(bulk(&mut a, &["GET", "lock"]).await.as_deref(), Some("me"));
    assert_eq!(number(&mut b, &["CLIENT", "ID"]).await, 1, "it is the first client of its server");
    let start = number(&mut a, &["TEST.CLOCK", "FREEZE"]).await;
    number(&mut a, &["TEST.CLOCK", "ADVANCE", "86400000"]).await;
    let elsewhere: i64 = outside.ask_lines("TIME\r\n", 5).await[2].parse().unwrap();
    assert!(elsewhere * 1000 < start + 86_400_000, "time passes as usual outside");
    assert_eq!(bulk(&mut a, &["GET", "lock"]).await.as_deref(), Some("me"));
}

#[tokio::test]
async fn a_client_enters_by_hello_and_by_auth_and_may_move_on() {
    let server = server(1).await;
    let mut client = client(&server, 1).await;
    // The requests behind it in the pipeline are those of the namespace, too.
    client.send("HELLO 3 AUTH any namespace:x SETNAME me\r\nSET k x\r\nAUTH namespace:y\r\nGET k\r\n").await;
    while !client.line().await.starts_with("*0") {}
    assert_eq!(client.lines(2).await, ["+OK", "+OK"]);
    assert_eq!(client.line().await, "_", "it still speaks RESP3");
    assert_eq!(client.ask(&["AUTH", "namespace:x"]).await, "+OK");
    assert_eq!(bulk(&mut client, &["GET", "k"]).await.as_deref(), Some("x"));
    assert_eq!(client.ask(&["AUTH", "namespace:default"]).await, "+OK");
    assert_eq!(bulk(&mut client, &["GET", "k"]).await, None);
}

#[tokio::test]
async fn a_client_that_moves_keeps_its_protocol() {
    let server = server(1).await;
    let mut client = client(&server, 1).await;
    client.send("HELLO 3\r\n").await;
    while !client.line().await.starts_with("*0") {}
    assert_eq!(client.ask(&["AUTH", "namespace:x"]).await, "+OK");
    assert_eq!(client.ask(&["GET", "k"]).await, "_");
}

#[tokio::test]
async fn a_namespace_that_is_dropped_closes_its_connections_and_begins_anew() {
    let server = server(1).await;
    let (mut inside, mut outside) = (client_in(&server, "x").await, client(&server, 1).await);
    inside.ask(&["SET", "k", "v"]).await;
    assert_eq!(number(&mut outside, &["TEST.NAMESPACE", "DROP", "x"]).await, 1);
    assert!(inside.has_ended().await);
    assert_eq!(number(&mut outside, &["TEST.NAMESPACE", "DROP", "x"]).await, 0);
    let mut again = client_in(&server, "x").await;
    assert_eq!(bulk(&mut again, &["GET", "k"]).await, None);
}

#[tokio::test]
async fn shutdown_in_a_namespace_ends_only_that() {
    let server = server(1).await;
    let (mut inside, mut outside) = (client_in(&server, "x").await, client(&server, 1).await);
    inside.say(&["SHUTDOWN", "NOSAVE"]).await;
    assert!(inside.has_ended().await);
    assert_eq!(outside.ask(&["PING"]).await, "+PONG");
    // The namespace is there again for the next client.
    let mut again = client_in(&server, "x").await;
    assert_eq!(again.ask(&["PING"]).await, "+PONG");
    outside.say(&["SHUTDOWN", "NOSAVE"]).await;
    server.stopped().await;
    assert!(again.has_ended().await);
}

#[tokio::test]
async fn names_and_numbers_of_namespaces_are_bounded() {
    let server = server(1).await;
    let mut client = client(&server, 1).await;
    let long = client.ask(&["AUTH", &format!("namespace:{}", "x".repeat(10_240))]).await;
    assert_eq!(long, "-ERR the name of a namespace has 1 to 128 bytes, not 10240");
    let plain = client.ask(&["AUTH", "namespace:two words"]).await;
    assert_eq!(plain, "-ERR the name of a namespace has letters, digits and . _ : / @ - only");
    let mut last = String::new();
    for number in 0..4096 {
        last = client.ask(&["AUTH", &format!("namespace:{number}")]).await;
    }
    assert_eq!(last, "-ERR there are 4096 namespaces, which is the limit; TEST.NAMESPACE DROP removes one");
    assert_eq!(client.ask(&["PING"]).await, "+PONG", "it is where it was");
    assert_eq!(number(&mut client, &["TEST.NAMESPACE", "DROP", "0"]).await, 1);
    assert_eq!(client.ask(&["AUTH", "namespace:one-more"]).await, "+OK");
}

#[tokio::test]
async fn without_the_setting_there_is_neither_a_namespace_nor_a_command() {
    let server = Server::builder().start().await.unwrap();
    let mut client = client(&server, 1).await;
    let text = "-ERR unknown command 'TEST.CLOCK', with args beginning with: 'FREEZE'";
    assert_eq!(client.ask(&["TEST.CLOCK", "FREEZE"]).await, text);
    let unknown = client.ask(&["TEST.CLOCK"]).await;
    assert!(unknown.starts_with("-ERR unknown command 'TEST.CLOCK'"), "{unknown}");
    assert!(client.ask(&["AUTH", "namespace:x"]).await.starts_with("-ERR AUTH <password> called without"));
    assert_eq!(client.ask(&["COMMAND", "INFO", "TEST.CLOCK"]).await, "*1");
    assert_eq!(client.line().await, "$-1");
}
