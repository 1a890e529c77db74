//! The certificate of a client as its login: `tls-auth-clients-user`.

use super::*;

const NOT_LOGGED_IN: &str = "-NOAUTH Authentication required.\r\n";

const USERS: &str = "user default on >secret ~* &* +@all\n\
    user alice on resetpass ~* &* +@all\n\
    user bob off nopass ~* &* +@all\n\
    user admin on >another ~* &* +@all\n\
    user urn:app:one on resetpass ~* &* +@all\n";

impl TlsFixture {
    /// A server whose users are [`USERS`], and that asks for a certificate.
    fn builder_with_users(&self, named_by: &str) -> Builder {
        let users = self.directory.write("users.acl", USERS);
        self.strict_builder().set("aclfile", users).set("tls-auth-clients-user", named_by)
    }
}

impl Client {
    /// A client with this certificate and no password.
    async fn with(tls: &TlsFixture, server: &Server, pair: (String, String)) -> Self {
        let config = tls.connector().showing_pair(pair).config();
        open(&server.tls_addr().to_string(), config).await.unwrap()
    }

    async fn is_user(&mut self, name: &str) {
        self.ask("ACL WHOAMI", &format!("${}\r\n{name}\r\n", name.len())).await;
    }

    /// Logs in by a password, and reads what the server says of failed logins by certificates.
    async fn denied(&mut self) -> String {
        self.ask("AUTH secret", "+OK\r\n").await;
        let stats = self.text("INFO stats").await;
        stats.lines().find(|line| line.starts_with("acl_access_denied_tls_cert:")).unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_client_is_the_user_of_the_name_in_its_certificate() {
    let tls = TlsFixture::new();
    let server = tls.builder_with_users("CN").start().await.unwrap();
    for version in [&version::TLS12, &version::TLS13] {
        let config = tls.connector().speaking(version).showing_pair(tls.authority.vouch("alice")).config();
        // The second connection resumes the session of the first.
        for _ in 0..2 {
            let mut alice = open(&server.tls_addr().to_string(), Arc::clone(&config)).await.unwrap();
            alice.is_user("alice").await;
            assert!(alice.text("CLIENT LIST").await.contains(" user=alice "));
        }
    }
    // The name of a user who has a password, too, and of the default user.
    for name in ["admin", "default"] {
        Client::with(&tls, &server, tls.authority.vouch(name)).await.is_user(name).await;
    }
}

#[tokio::test]
async fn a_certificate_without_a_user_who_is_on_is_no_login_and_is_told() {
    let tls = TlsFixture::new();
    let server = tls.builder_with_users("CN").start().await.unwrap();
    let mut client = Client::with(&tls, &server, tls.authority.vouch("alice")).await;
    for name in ["bob", "nobody", "admin\0.example", "Alice"] {
        let mut stranger = Client::with(&tls, &server, tls.authority.vouch(name)).await;
        stranger.ask("GET lock", NOT_LOGGED_IN).await;
        client.say("ACL LOG 1\r\n").await.unwrap();
        let mut entry = Vec::new();
        while entry.last().is_none_or(|line| line != "timestamp-last-updated") {
            entry.push(client.line().await);
        }
        client.line().await;
        let after = |field: &str| entry[entry.iter().position(|line| line == field).unwrap() + 2].clone();
        assert_eq!((after("reason"), after("username")), ("tls-cert".to_owned(), name.to_owned()));
        assert_eq!((after("context"), after("object")), ("toplevel".to_owned(), String::new()));
        // A password is another way in.
        stranger.ask("AUTH admin another", "+OK\r\n").await;
        stranger.is_user("admin").await;
    }
    assert_eq!(client.denied().await, "acl_access_denied_tls_cert:4");
}

#[tokio::test]
async fn a_client_without_a_certificate_is_asked_for_a_password_and_nothing_is_told() {
    let tls = TlsFixture::new();
    for (auth, named_by, pair) in [
        ("optional", "CN", None),
        // Neither is the certificate asked for, nor its name.
        ("no", "CN", Some("alice")),
        ("yes", "off", Some("alice")),
        // It has no URI.
        ("yes", "URI", Some("alice")),
    ] {
        let server = tls.builder_with_users(named_by).set("tls-auth-clients", auth).start().await.unwrap();
        let connector = tls.connector();
        let connector = match pair {
            Some(name) => connector.showing_pair(tls.authority.vouch(name)),
            None => connector,
        };
        let mut client = open(&server.tls_addr().to_string(), connector.config()).await.unwrap();
        client.ask("GET lock", NOT_LOGGED_IN).await;
        assert_eq!(client.denied().await, "acl_access_denied_tls_cert:0", "{auth} {named_by}");
        client.ask("ACL LOG", "*0\r\n").await;
    }
}

#[tokio::test]
async fn the_first_uri_of_a_user_who_is_on_is_the_login() {
    let tls = TlsFixture::new();
    let server = tls.builder_with_users("URI").start().await.unwrap();
    let pair = tls.authority.vouch_uris("alice", &["spiffe://example/nobody", "bob", "urn:app:one", "admin"]);
    let mut client = Client::with(&tls, &server, pair).await;
    client.is_user("urn:app:one").await;
    let pair = tls.authority.vouch_uris("alice", &["spiffe://example/nobody", "bob"]);
    let mut stranger = Client::with(&tls, &server, pair).await;
    stranger.ask("GET lock", NOT_LOGGED_IN).await;
    assert_eq!(stranger.denied().await, "acl_access_denied_tls_cert:1");
}

#[tokio::test]
async fn the_login_is_of_the_connection_until_reset_or_another_one() {
    let tls = TlsFixture::new();
    let server = tls.builder_with_users("off").start().await.unwrap();
    let mut before = Client::with(&tls, &server, tls.authority.vouch("alice")).await;
    before.ask("AUTH secret", "+OK\r\n").await;
    before.ask("CONFIG SET tls-auth-clients-user cn", "+OK\r\n").await;
    before.is_user("default").await;

    let mut alice = Client::with(&tls, &server, tls.authority.vouch("alice")).await;
    alice.is_user("alice").await;
    alice.ask("AUTH admin another", "+OK\r\n").await;
    alice.is_user("admin").await;
    alice.ask("RESET", "+RESET\r\n").await;
    alice.ask("GET lock", NOT_LOGGED_IN).await;

    let mut alice = Client::with(&tls, &server, tls.authority.vouch("alice")).await;
    alice.is_user("alice").await;
    before.ask("ACL DELUSER alice", ":1\r\n").await;
    assert_eq!(alice.0.read(&mut [0; 9]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn logins_by_certificates_are_lines_of_the_audit_log() {
    let tls = TlsFixture::new();
    let path = tls.directory.path("audit.log");
    let builder = tls.builder_with_users("CN").set("audit-log", &path);
    let server = tokio::task::spawn_blocking(|| builder.start_blocking().unwrap()).await.unwrap();
    Client::with(&tls, &server, tls.authority.vouch("alice")).await.is_user("alice").await;
    Client::with(&tls, &server, tls.authority.vouch("nobody")).await.ask("PING", NOT_LOGGED_IN).await;
    server.stop();
    tokio::task::spawn_blocking(|| server.join()).await.unwrap();
    let lines = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = lines.iter().map(|line| (&line["event"], &line["user"], &line["name"])).collect::<Vec<_>>();
    let [login, failed] = said[..] else { panic!("two lines: {said:?}") };
    assert_eq!(login, (&"login".into(), &"alice".into(), &serde_json::Value::Null));
    assert_eq!(failed, (&"login-failed".into(), &"".into(), &"nobody".into()));
}
