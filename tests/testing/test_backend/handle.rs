//! The test backend as a Rust test holds it.

use std::time::Duration;

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
