//! The binary with TLS: ports, SIGHUP and `redlatch health`.

use std::process::Command;

use super::*;
use crate::support::binary::{Running, redlatch, refusal};

impl TlsFixture {
    /// The arguments of a server that listens with TLS only.
    fn arguments(&self) -> Vec<String> {
        let (certificate, key) = self.directory.write_pair(&self.authority, "server");
        let authority = self.directory.write("authority.crt", &self.authority.pem);
        let words = ["--port", "0", "--tls-port", "auto", "--tls-cert-file", &certificate];
        let more = ["--tls-key-file", &key, "--tls-ca-cert-file", &authority];
        words.into_iter().chain(more).map(str::to_owned).collect()
    }
}

fn health(arguments: &[&str]) -> Command {
    let mut command = redlatch();
    command.arg("health").args(arguments);
    command
}

#[test]
fn a_port_file_names_the_free_port_and_goes_with_the_server() {
    let tls = TlsFixture::new();
    let file = tls.directory.path("port");
    let mut command = redlatch();
    command.args(tls.arguments()).args(["--tls-port-file", &file]);
    let server = Running::start(&mut command);
    let port = std::fs::read_to_string(&file).unwrap();
    assert_eq!(server.address_of("tls"), format!("127.0.0.1:{}", port.trim_end()));
    assert_eq!(server.address(), "");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    assert!(!std::fs::exists(&file).unwrap());
}

#[test]
fn health_verifies_the_server_by_its_cacert() {
    let tls = TlsFixture::new();
    let mut command = redlatch();
    command.args(tls.arguments()).args(["--tls-auth-clients", "no", "--requirepass", "secret"]);
    let server = Running::start(&mut command);
    let url = format!("rediss://:secret@{}", server.address_of("tls"));
    let friend = tls.directory.path("authority.crt");
    let stranger = tls.directory.write("stranger.crt", &Authority::new("a stranger").pem);
    assert!(health(&[&url, "--cacert", &friend]).status().unwrap().success());
    assert!(health(&[&url, "--insecure"]).status().unwrap().success());
    let said = refusal(&health(&[&url, "--cacert", &stranger]).output().unwrap());
    assert!(said.contains("invalid peer certificate"), "{said}");
    let said = refusal(&health(&[&url]).output().unwrap());
    assert!(said.contains("--cacert FILE or --insecure"), "{said}");
    let plain = url.replace("rediss", "redis");
    refusal(&health(&[&plain]).output().unwrap());
}

#[test]
fn health_shows_a_certificate_where_one_is_asked_for() {
    let tls = TlsFixture::new();
    let server = Running::start(redlatch().args(tls.arguments()));
    let address = server.address_of("tls");
    let url = format!("rediss://{address}");
    let (certificate, key) = tls.directory.write_pair(&tls.authority, "connector");
    let authority = tls.directory.path("authority.crt");
    let known = ["--cacert", &authority, "--cert", &certificate, "--key", &key];
    assert!(health(&[&[&*url], &known[..]].concat()).status().unwrap().success());
    refusal(&health(&[&url, "--insecure"]).output().unwrap());
    // The server's own environment needs no variable.
    let mut command = health(&[]);
    command.env("REDLATCH_PORT", "0").env("REDLATCH_TLS_PORT", address.rsplit(':').next().unwrap());
    command.env("REDLATCH_TLS_CERT_FILE", tls.directory.path("server.crt"));
    command.env("REDLATCH_TLS_KEY_FILE", tls.directory.path("server.key"));
    assert!(command.status().unwrap().success());
}

#[tokio::test]
async fn a_hangup_signal_has_certificates_read_again() {
    let tls = TlsFixture::new();
    let mut command = redlatch();
    command.args(tls.arguments()).args(["--tls-auth-clients", "no"]);
    let mut server = Running::start(&mut command);
    let address = server.address_of("tls");
    let mut old = tls.connector().connect_to(&address).await.unwrap();
    tls.directory.write_pair(&tls.authority, "server");
    server.signal("HUP");
    server.wait_for("Certificates are reloaded");
    let new = tls.connector().connect_to(&address).await.unwrap();
    assert_ne!(old.certificate(), new.certificate());
    old.ask("DBSIZE", ":0\r\n").await;

    tls.directory.write("server.key", "nothing of a key");
    server.signal("HUP");
    let said = server.wait_for("Certificates cannot be reloaded: the old ones stay in use");
    assert!(said.contains("tls-key-file"), "{said}");
    let newer = tls.connector().connect_to(&address).await.unwrap();
    assert_eq!(newer.certificate(), new.certificate());
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_certificate_that_has_expired_is_a_warning_and_a_metric_until_it_is_renewed() {
    let tls = TlsFixture::new();
    let mut command = redlatch();
    command.args(tls.arguments()).args(["--port", "auto"]);
    let (certificate, key) = tls.authority.vouch_expired("server");
    tls.directory.write("server.crt", &certificate);
    tls.directory.write("server.key", &key);
    let mut server = Running::start(&mut command);
    let said = server.wait_for("The server's certificate has expired, or is about to");
    assert!(said.contains("left_secs=0"), "{said}");
    let end_of_2019 = "tls_certificate_not_after_seconds:1577836800\r";
    assert!(server.ask("INFO server").contains(end_of_2019));

    tls.directory.write_pair(&tls.authority, "server");
    server.signal("HUP");
    server.wait_for("Certificates are reloaded");
    let renewed = server.ask("INFO server");
    assert!(!renewed.contains(end_of_2019), "{renewed}");
    assert!(!renewed.contains("tls_certificate_not_after_seconds:0"), "{renewed}");
}
