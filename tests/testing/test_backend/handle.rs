//! The test backend as a Rust test holds it.

use std::time::Duration;

use redlatch::NodeState;

use super::*;

#[tokio::test]
async fn the_clock_of_a_namespace_is_its_own() {
    let server = server(1).await;
    let (one, other) = (server.namespace("one").unwrap(), server.namespace("other").unwrap());
    one.clock().freeze().await;
    let mut client = StreamClient::new(one.stream());
    assert_eq!(client.ask(&["SET", "lock", "me", "NX", "PX", "30000"]).await, "+OK");
    let before = other.clock().now();
    one.clock().advance(Duration::from_secs(31)).await;
    assert_eq!(client.ask(&["SET", "lock", "other", "NX"]).await, "+OK");
    assert!(other.clock().now().millis_since(before) < 31_000);
    assert_eq!(one.clock().next().await, None);
    assert_eq!(one.url(), format!("redis://:namespace%3Aone@{}", server.addr()));
}

#[tokio::test]
async fn a_namespace_needs_tests_and_a_good_name() {
    let plain = Server::builder().start().await.unwrap();
    assert_eq!(plain.namespace("x").unwrap_err().to_string(), "the server was built without tests");
    let server = server(1).await;
    let error = server.namespace("").unwrap_err().to_string();
    assert_eq!(error, "the name of a namespace has 1 to 128 bytes, not 0");
}

#[tokio::test]
async fn redlock_takes_a_lock_although_a_node_has_crashed() {
    let server = server(3).await;
    server.nodes().crash(2, false).await;
    assert_eq!(server.nodes().list()[1].state, NodeState::Crashed);
    let mut grants = 0;
    for node in 1..=3 {
        let mut client = client(&server, node).await;
        client.say(&["SET", "lock", "me", "NX", "PX", "30000"]).await;
        let mut reply = [0; 5];
        grants += usize::from(client.0.read_exact(&mut reply).await.is_ok());
    }
    assert_eq!(grants, 2);
    server.nodes().start(2).await;
    let mut client = client(&server, 2).await;
    assert_eq!(client.ask(&["SET", "lock", "me", "NX", "PX", "30000"]).await, "+OK");
}
