//! Which certificates are accepted, and the cost of refused clients.

use super::*;
use crate::support::waits::wait_until_async;

#[tokio::test]
async fn both_versions_are_spoken() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    for version in [&version::TLS12, &version::TLS13] {
        let client = tls.connector().speaking(version).connect(&server).await.unwrap();
        assert_eq!(client.0.get_ref().1.protocol_version(), Some(version.version));
    }
}

#[tokio::test]
async fn the_address_holds_the_password() {
    let server = TlsFixture::new().builder().password("secret").start().await.unwrap();
    assert_eq!(server.tls_url(), format!("rediss://:secret@127.0.0.1:{}", server.tls_addr().port()));
}

#[tokio::test]
async fn a_version_that_is_not_offered_is_not_spoken() {
    let tls = TlsFixture::new();
    let server = tls.builder().set("tls-protocols", "TLSv1.3").start().await.unwrap();
    assert!(tls.connector().speaking(&version::TLS12).connect(&server).await.is_err());
    tls.connector().connect(&server).await.unwrap();
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_is_not_talked_to() {
    let (tls, elsewhere) = (TlsFixture::new(), Authority::new("elsewhere"));
    let server = tls.server().await;
    let stranger = Connector { trusts: &elsewhere, ..tls.connector() };
    assert!(stranger.connect(&server).await.is_err());
    tls.connector().connect(&server).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_asked_for_as_the_setting_says() {
    let (tls, elsewhere) = (TlsFixture::new(), Authority::new("elsewhere"));
    for (auth, may_be_nobody, may_be_anybody) in
        [("yes", false, false), ("optional", true, false), ("no", true, true)]
    {
        let server = tls.strict_builder().set("tls-auth-clients", auth).start().await.unwrap();
        tls.connector().showing(&tls.authority).connect(&server).await.unwrap();
        assert_eq!(tls.connector().connect(&server).await.is_ok(), may_be_nobody, "{auth}: without");
        let stranger = tls.connector().showing(&elsewhere).connect(&server).await;
        assert_eq!(stranger.is_ok(), may_be_anybody, "{auth}: from elsewhere");
    }
}

#[tokio::test]
async fn authorities_come_from_a_directory_too_and_what_else_lies_there_is_passed_over() {
    let (tls, other) = (TlsFixture::new(), Authority::new("another friend"));
    let trusted = Directory::new();
    trusted.write("one.pem", &tls.authority.pem);
    trusted.write("0a1b2c3d.0", &other.pem);
    trusted.write("README", "friends of the house");
    trusted.write_pair(&other, "server");
    let builder = tls.builder().set("tls-auth-clients", "yes").set("tls-ca-cert-dir", trusted.path(""));
    let server = builder.start().await.unwrap();
    for authority in [&tls.authority, &other] {
        tls.connector().showing(authority).connect(&server).await.unwrap();
    }
    assert!(tls.connector().connect(&server).await.is_err());
    assert!(tls.connector().showing(&Authority::new("elsewhere")).connect(&server).await.is_err());
}

#[tokio::test]
async fn plain_words_at_the_door_for_tls_are_not_answered() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut client = tls.connector().connect(&server).await.unwrap();
    for words in
        [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0; 100], &[0x16; 100]]
    {
        let answer = shout(server.tls_addr(), words).await;
        assert!(answer.len() <= 7 && !answer.starts_with(b"+"), "an alert at most: {answer:?}");
    }
    client.ask("DBSIZE", ":0\r\n").await;
}

#[tokio::test]
async fn tls_at_the_plain_door_is_told_so() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let address = server.addr().to_string();
    assert!(tls.connector().connect_to(&address).await.is_err());
    let answer = shout(server.addr(), &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await;
    assert_eq!(String::from_utf8_lossy(&answer), "-ERR Protocol error: TLS on a port without it\r\n");
}

#[tokio::test]
async fn an_unfinished_handshake_blocks_no_client_and_times_out() {
    let tls = TlsFixture::new();
    let builder = tls.builder().set("maxclients", "3").set("maxclients-reserved", "0");
    let server = builder.start().await.unwrap();
    let mut client = tls.connector().connect(&server).await.unwrap();
    let mut silent = TcpStream::connect(server.tls_addr()).await.unwrap();
    let mut slow = TcpStream::connect(server.tls_addr()).await.unwrap();
    slow.write_all(&[0x16, 3, 1, 2]).await.unwrap();
    // Both are clients, as in Redis: they count towards `maxclients`, are listed and can be killed.
    for stream in [&silent, &slow] {
        let address = format!(" addr={} ", stream.local_addr().unwrap());
        wait_until_async("it is listed", async || client.text("CLIENT LIST").await.contains(&address)).await;
    }
    // A refusal needs no handshake.
    assert_eq!(shout(server.tls_addr(), &[]).await, b"");
    assert_eq!(shout(server.addr(), b"PING\r\n").await, b"-ERR max number of clients reached\r\n");
    let address = slow.local_addr().unwrap();
    client.ask(&format!("CLIENT KILL ADDR {address}"), ":1\r\n").await;
    assert_eq!(slow.read(&mut [0; 9]).await.unwrap_or(0), 0);
    server.stop();
    assert_eq!(silent.read(&mut [0; 9]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn time_that_the_test_owns_moves_on_beside_a_handshake() {
    let tls = TlsFixture::new();
    let start = redlatch::WallTime::from_millis(1_700_000_000_000);
    let server = tls.builder().manual_clock(start).start().await.unwrap();
    let mut client = tls.connector().connect(&server).await.unwrap();
    let _silent = TcpStream::connect(server.tls_addr()).await.unwrap();
    client.ask("SET lock me PX 1000", "+OK\r\n").await;
    server.clock().advance(std::time::Duration::from_millis(1001)).await;
    client.ask("GET lock", "$-1\r\n").await;
}
