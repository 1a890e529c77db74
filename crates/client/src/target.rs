//! The server that a URL names, the login for it, and whom to trust.

use super::error::Error;

/// Which servers behind a `rediss://` URL to trust, and the certificate to show to them. Default: none is trusted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Trust {
    /// File of the authorities that may have signed the server's certificate, in PEM.
    pub authorities: Option<String>,
    /// Whether any server is trusted.
    pub accepts_any: bool,
    /// Files of a certificate and its key, in PEM, for a server that asks for them.
    pub identity: Option<(String, String)>,
}

/// The address of a server, and the login.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Target {
    pub address: String,
    pub transport: Transport,
    pub user: String,
    pub password: String,
    pub database: u32,
    /// Who says where the server is; `None`: it is at the address.
    pub sentinels: Option<Sentinels>,
}

/// Sentinels, and the name of the master that they are asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sentinels {
    pub addresses: Vec<String>,
    pub master: String,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transport {
    #[default]
    Tcp,
    Tls,
    Unix,
}

impl Target {
    /// Reads `redis[s]://[[user]:password@]host[:port][/database]`,
    /// `redis[s]+sentinel://[[user]:password@]host[:port],.../name[/database]` or `unix:///path`.
    ///
    /// # Errors
    /// The text is no such URL.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let expected = "must be redis[s]://[[user]:password@]host[:port][/db], \
                        redis[s]+sentinel://[[user]:password@]host[:port],.../name[/db] or unix:///path";
        let unfit = || Error::Url(format!("URL '{url}': {expected}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(unfit)?;
        let transport = match scheme {
            "redis" | "redis+sentinel" => Transport::Tcp,
            "rediss" | "rediss+sentinel" => Transport::Tls,
            "unix" => Transport::Unix,
            _ => return Err(unfit()),
        };
        let login = Some(rest).filter(|rest| !rest.starts_with('/')).and_then(|rest| rest.rsplit_once('@'));
        let (login, rest) = login.unwrap_or(("", rest));
        let (user, password) = login.split_once(':').unwrap_or(("", login));
        let rest = rest.split('?').next().unwrap_or(rest);
        if scheme.ends_with("+sentinel") {
            let (sentinels, database) = sentinels(rest).ok_or_else(unfit)?;
            let (address, sentinels) = (sentinels.addresses[0].clone(), Some(sentinels));
            let (user, password) = (decoded(user), decoded(password));
            return Ok(Self { address, transport, user, password, database, sentinels });
        }
        let (address, database) = match (transport, rest.split_once('/')) {
            (Transport::Unix, _) | (_, None) => (rest, ""),
            (_, Some(parts)) => parts,
        };
        let address = match address {
            "" if transport == Transport::Unix => return Err(unfit()),
            path if transport == Transport::Unix => path.to_owned(),
            host => with_port(host, 6379),
        };
        let database = if database.is_empty() { Ok(0) } else { database.parse() };
        let database = database.map_err(|_| unfit())?;
        let (user, password) = (decoded(user), decoded(password));
        Ok(Self { address, transport, user, password, database, sentinels: None })
    }
}

/// Reads `host[:port],.../name[/database]`.
fn sentinels(text: &str) -> Option<(Sentinels, u32)> {
    let mut parts = text.splitn(3, '/');
    let addresses = parts.next()?.split(',').map(|host| with_port(host, 26_379)).collect();
    let master = decoded(parts.next()?);
    let database = parts.next().filter(|database| !database.is_empty());
    let database = database.map_or(Some(0), |database| database.parse().ok())?;
    (!master.is_empty()).then_some((Sentinels { addresses, master }, database))
}

/// The address with this port, if it names none.
fn with_port(host: &str, port: u16) -> String {
    match host {
        "" => format!("127.0.0.1:{port}"),
        host if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => host.to_owned(),
        host => format!("{host}:{port}"),
    }
}

/// The text without its percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let code = tail.get(..2).filter(|_| *byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_address_the_login_and_the_database() {
        for (url, address, user, password, database) in [
            ("redis://", "127.0.0.1:6379", "", "", 0),
            ("redis://host", "host:6379", "", "", 0),
            ("redis://host:7000/3", "host:7000", "", "", 3),
            ("redis://host/3?timeout=1", "host:6379", "", "", 3),
            ("redis://:p%40ss@[::1]:7000", "[::1]:7000", "", "p@ss", 0),
            ("redis://me:secret@host", "host:6379", "me", "secret", 0),
            ("rediss://host:7000/", "host:7000", "", "", 0),
            ("unix:///run/redlatch.sock", "/run/redlatch.sock", "", "", 0),
            ("unix:///run/a@b.sock", "/run/a@b.sock", "", "", 0),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(
                (&*target.address, &*target.user, &*target.password, target.database),
                (address, user, password, database),
                "{url}"
            );
        }
        let target = Target::parse("redis+sentinel://:secret@one:5000,[::1]/my%20master/2").unwrap();
        let sentinels = target.sentinels.unwrap();
        assert_eq!(sentinels.addresses, ["one:5000", "[::1]:26379"]);
        assert_eq!((&*sentinels.master, &*target.password, target.database), ("my master", "secret", 2));
        for url in [
            "redis+sentinel://one", "redis+sentinel://one/", "redis+sentinel://one/a/b", "", "host:6379",
            "http://host", "unix://", "redis://host/x",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
