//! What passes: as much, in the same order, as without TLS.

use super::*;
use crate::support::waits::wait_until_async;

/// Bytes in which nothing repeats.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test]
async fn large_values_pass_both_ways() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut client = tls.connector().connect(&server).await.unwrap();
    let value = noise(5 << 20);
    let opening = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len());
    client.say([opening.as_bytes(), &value, b"\r\n"].concat()).await.unwrap();
    client.hear("+OK\r\n").await.unwrap();
    assert_eq!(server.keys().get("k").unwrap(), value);
    client.say("GET k\r\n").await.unwrap();
    let answer = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut heard = vec![0; answer.len()];
    client.0.read_exact(&mut heard).await.unwrap();
    assert!(heard == answer, "the value comes back as it was");
}

#[tokio::test]
async fn a_cluster_client_is_told_the_port_for_tls() {
    let tls = TlsFixture::new();
    let server = tls.builder().set("cluster-enabled", "yes").start().await.unwrap();
    let mut client = tls.connector().connect(&server).await.unwrap();
    let port = server.tls_addr().port();
    let nodes = client.text("CLUSTER NODES").await;
    assert!(nodes.contains(&format!(" 127.0.0.1:{port}@")), "{nodes}");
    client.ask("CONFIG SET cluster-announce-tls-port 7", "+OK\r\n").await;
    let nodes = client.text("CLUSTER NODES").await;
    assert!(nodes.contains(" 127.0.0.1:7@"), "{nodes}");
    let plain = shout(server.addr(), b"CLUSTER NODES\r\nQUIT\r\n").await;
    let plain = String::from_utf8(plain).unwrap();
    assert!(plain.contains(&format!(" 127.0.0.1:{}@", server.addr().port())), "{plain}");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    const REQUESTS: usize = 20_000;
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut client = tls.connector().connect(&server).await.unwrap();
    client.say("INCR n\r\n".repeat(REQUESTS)).await.unwrap();
    let expected: String = (1..=REQUESTS).map(|n| format!(":{n}\r\n")).collect();
    client.hear(expected).await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_late_misses_nothing() {
    const REQUESTS: usize = 40;
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut client = tls.connector().connect(&server).await.unwrap();
    let value = noise(1 << 20);
    server.keys().set("k", &value, None);
    // Far more than the sockets take, so that the server stands with a record half sent; others notice nothing.
    client.say("GET k\r\n".repeat(REQUESTS)).await.unwrap();
    let mut other = tls.connector().connect(&server).await.unwrap();
    for n in 1..=100 {
        other.ask("INCR n", &format!(":{n}\r\n")).await;
    }
    let answer = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut heard = vec![0; answer.len()];
    for request in 0..REQUESTS {
        client.0.read_exact(&mut heard).await.unwrap();
        assert!(heard == answer, "answer {request} is whole");
    }
}

#[tokio::test]
async fn pushes_and_answers_to_waiting_calls_come_through() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut listener = tls.connector().connect(&server).await.unwrap();
    let mut waiter = tls.connector().connect(&server).await.unwrap();
    let mut actor = tls.connector().connect(&server).await.unwrap();
    listener.ask("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n").await;
    waiter.say("BLPOP list 0\r\n").await.unwrap();
    // The call waits once the server counts it.
    wait_until_async("one waits", async || actor.text("INFO clients").await.contains("blocked_clients:1"))
        .await;
    actor.ask("PUBLISH news hello", ":1\r\n").await;
    listener.hear("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n").await.unwrap();
    actor.ask("RPUSH list item", ":1\r\n").await;
    waiter.hear("*2\r\n$4\r\nlist\r\n$4\r\nitem\r\n").await.unwrap();
}

#[tokio::test]
async fn the_end_is_said_and_not_only_cut() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    for (request, answer) in
        [("QUIT", "+OK\r\n"), ("*1\r\nx", "-ERR Protocol error: expected '$', got 'x'\r\n")]
    {
        let mut client = tls.connector().connect(&server).await.unwrap();
        client.ask(request, answer).await;
        // Without the word of the end this would be an error.
        assert_eq!(client.0.read(&mut [0; 9]).await.unwrap(), 0, "{request}");
    }
    let mut client = tls.connector().connect(&server).await.unwrap();
    server.stop();
    assert_eq!(client.0.read(&mut [0; 9]).await.unwrap(), 0);
}
