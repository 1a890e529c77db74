//! The server's certificate: at start, and reloaded while it runs.

use super::*;

const KEPT: &str = "Unable to update TLS configuration. Check server logs.";

#[tokio::test]
async fn new_connections_meet_renewed_certificates_and_old_ones_live_on() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut old = tls.connector().connect(&server).await.unwrap();
    tls.directory.write_pair(&tls.authority, "server");
    server.reload_certificates().unwrap();
    let new = tls.connector().connect(&server).await.unwrap();
    assert_ne!(old.certificate(), new.certificate());
    old.ask("DBSIZE", ":0\r\n").await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_leaves_the_one_in_use() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let before = tls.connector().connect(&server).await.unwrap().certificate();
    tls.directory.write("server.crt", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    let reason = server.reload_certificates().unwrap_err();
    assert!(reason.starts_with("tls-cert-file"), "{reason}");
    assert_eq!(tls.connector().connect(&server).await.unwrap().certificate(), before);
}

#[tokio::test]
async fn config_set_takes_files_that_fit_and_refuses_all_others() {
    let tls = TlsFixture::new();
    let server = tls.server().await;
    let mut client = tls.connector().connect(&server).await.unwrap();
    let (certificate, key) = tls.directory.write_pair(&tls.authority, "other");
    let missing = tls.directory.path("missing");
    for (name, settings) in [
        ("tls-cert-file", format!("tls-cert-file {certificate}")),
        ("tls-key-file", format!("maxclients 7 tls-key-file {missing}")),
        ("tls-protocols", "tls-protocols TLSv1.1".to_owned()),
        ("tls-auth-clients", "tls-auth-clients yes".to_owned()),
    ] {
        let refused = format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {KEPT}\r\n");
        client.ask(&format!("CONFIG SET {settings}"), &refused).await;
    }
    client.ask("CONFIG GET maxclients", "*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n").await;
    client.ask("CONFIG GET tls-protocols", "*2\r\n$13\r\ntls-protocols\r\n$0\r\n\r\n").await;
    client.ask(&format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}"), "+OK\r\n").await;
    let met = tls.connector().connect(&server).await.unwrap();
    assert_ne!(met.certificate(), client.certificate());

    let authority = tls.directory.write("authority.crt", &tls.authority.pem);
    let strict = format!("CONFIG SET tls-auth-clients yes tls-ca-cert-file {authority}");
    client.ask(&strict, "+OK\r\n").await;
    assert!(tls.connector().connect(&server).await.is_err());
    tls.connector().showing(&tls.authority).connect(&server).await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_version_1_is_refused_with_the_way_to_a_better_one() {
    let tls = TlsFixture::new();
    let (certificate, _) = tls.directory.write_pair(&tls.authority, "old");
    let pem = std::fs::read_to_string(&certificate).unwrap();
    // The number of the version is 2 for version 3, and 0 for version 1, and the serial number follows. What comes before
    // has one of two lengths.
    let old = pem.replacen("gAwIBAgI", "gAwIBAAI", 1).replacen("ADAgECAh", "ADAgEAAh", 1);
    assert_ne!(old, pem);
    let old = tls.directory.write("old.crt", &old);
    let refused = tls.builder().set("tls-cert-file", &old).start().await.unwrap_err().to_string();
    let said = "tls-cert-file and tls-key-file do not fit: a certificate of X.509 version 1 cannot be used";
    assert!(refused.starts_with(said) && refused.contains("-extfile"), "{refused}");
}

#[tokio::test]
async fn a_start_that_cannot_be_is_explained_in_one_sentence() {
    let tls = TlsFixture::new();
    let missing = tls.directory.path("missing");
    let (_, foreign) = tls.directory.write_pair(&tls.authority, "foreign");
    let empty = tls.directory.write("empty.crt", "");
    for (name, value, said) in [
        ("tls-cert-file", "", "tls-cert-file '': must be a file of PEM certificates: "),
        ("tls-cert-file", &missing, "must be a file of PEM certificates: "),
        ("tls-cert-file", &empty, "must be a file of PEM certificates: there is none"),
        ("tls-key-file", &missing, "must be a file with an open PEM key: "),
        ("tls-key-file", &empty, "must be a file with an open PEM key: "),
        ("tls-key-file", &foreign, "tls-cert-file and tls-key-file do not fit: "),
        ("tls-auth-clients", "yes", "tls-auth-clients 'yes': must be no where there is no tls-ca-cert-file"),
        ("tls-protocols", "TLSv1.3 SSLv3", "tls-protocols 'TLSv1.3 SSLv3': must be TLSv1.2, TLSv1.3 or both"),
        ("tls-port", "70000", "tls-port '70000': must be auto or an integer between 0 and 65535"),
    ] {
        let refused = tls.builder().set(name, value).start().await.unwrap_err().to_string();
        assert!(refused.contains(said), "{name} {value}: {refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
}

#[tokio::test]
async fn tls_may_be_the_only_way_in() {
    let tls = TlsFixture::new();
    let server = tls.builder().port(0).start().await.unwrap();
    let mut client = tls.connector().connect(&server).await.unwrap();
    let port = server.tls_addr().port().to_string();
    let shown = format!("*2\r\n$8\r\ntls-port\r\n${}\r\n{port}\r\n", port.len());
    client.ask("CONFIG GET tls-port", &shown).await;
    client.ask("CONFIG GET port", "*2\r\n$4\r\nport\r\n$1\r\n0\r\n").await;
    client.say("INFO server\r\n").await.unwrap();
    while client.line().await != format!("tcp_port:{port}") {}
}
