//! The server that a subcommand asks: by its URL, or by the environment.

use clap::{Arg, ArgAction, ArgMatches, Command};
use redlatch_client::Trust;
use redlatch_client::wire::{Target, Transport};

use super::process::Fault;

/// The server to ask, and whom to trust.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ServerAddress {
    /// The URL that was given.
    pub(crate) url: Option<String>,
    pub(crate) trust: Trust,
}

impl ServerAddress {
    /// Reads the arguments of [`with_trust`] and the argument `url`.
    pub(crate) fn read(matches: &ArgMatches) -> Self {
        Self { url: matches.get_one::<String>("url").cloned(), trust: Self::trust(matches) }
    }

    /// Reads the arguments of [`with_trust`].
    pub(crate) fn trust(matches: &ArgMatches) -> Trust {
        let word = |name| matches.get_one::<String>(name).cloned();
        Trust {
            authorities: word("cacert"),
            accepts_any: matches.get_flag("insecure"),
            identity: word("cert").zip(word("key-file")),
        }
    }

    /// The server of the URL, or of REDLATCH_URL; without one, the server that the environment of this process would
    /// start.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(crate) fn find(self) -> Result<(Target, Trust), Fault> {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        match self.url.or_else(|| read("REDLATCH_URL")) {
            Some(url) => {
                let target = Target::parse(&url).map_err(|error| error.to_string())?;
                Ok((target, self.trust))
            }
            None => Ok(of_environment(read, self.trust)),
        }
    }
}

/// Adds the flags for a server behind a `rediss://` URL.
pub(crate) fn with_trust(command: Command) -> Command {
    let file = |id: &'static str, flag: &'static str, help: &'static str| {
        Arg::new(id).long(flag).value_name("FILE").help(help)
    };
    let authorities = "Certificates of the authorities to trust for a rediss:// server, in PEM.";
    command
        .arg(file("cacert", "cacert", authorities))
        .arg(file("cert", "cert", "Certificate of the client, in PEM.").requires("key-file"))
        .arg(file("key-file", "key", "Key of the client's certificate, in PEM.").requires("cert"))
        .arg(
            Arg::new("insecure")
                .long("insecure")
                .action(ArgAction::SetTrue)
                .help("Trusts any rediss:// server, without a check of its certificate."),
        )
}

/// Adds the flag for the server to ask, and those of [`with_trust`].
pub(crate) fn with_url(command: Command) -> Command {
    let url = Arg::new("url")
        .long("url")
        .value_name("URL")
        .help("redis[s]://[[user]:password@]host[:port][/db] or unix:///path [env: REDLATCH_URL]");
    with_trust(command.arg(url))
}

fn of_environment(read: impl Fn(&str) -> Option<String>, trust: Trust) -> (Target, Trust) {
    let password = read("REDLATCH_REQUIREPASS").unwrap_or_default();
    let port_of = |name: &str| read(name).filter(|port| port.parse::<u16>().is_ok());
    let port = port_of("REDLATCH_PORT").unwrap_or_else(|| "6379".into());
    let tls_port = port_of("REDLATCH_TLS_PORT").filter(|port| port != "0");
    let target = |address, transport| Target { address, transport, password, ..Target::default() };
    match (read("REDLATCH_UNIXSOCKET"), tls_port) {
        (Some(address), _) if port == "0" => (target(address, Transport::Unix), trust),
        (None, Some(tls_port)) if port == "0" => {
            // The server is on this machine. Its certificate may name other hosts, and serves as ours, too.
            let identity = read("REDLATCH_TLS_CERT_FILE").zip(read("REDLATCH_TLS_KEY_FILE"));
            let trust = Trust { accepts_any: true, identity: trust.identity.or(identity), ..trust };
            (target(format!("127.0.0.1:{tls_port}"), Transport::Tls), trust)
        }
        _ => (target(format!("127.0.0.1:{port}"), Transport::Tcp), trust),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_url_the_environment_names_the_server() {
        let target = |variables: &[(&str, &str)]| {
            let read = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            of_environment(read, Trust::default())
        };
        let address = |variables| target(variables).0.address;
        assert_eq!(address(&[("REDLATCH_PORT", "7000"), ("REDLATCH_TLS_PORT", "7001")]), "127.0.0.1:7000");
        assert_eq!(address(&[("REDLATCH_PORT", "0"), ("REDLATCH_UNIXSOCKET", "/run/it")]), "/run/it");
        let (tls, trust) = target(&[
            ("REDLATCH_PORT", "0"),
            ("REDLATCH_TLS_PORT", "7001"),
            ("REDLATCH_TLS_CERT_FILE", "c"),
            ("REDLATCH_TLS_KEY_FILE", "k"),
        ]);
        assert_eq!((&*tls.address, tls.transport), ("127.0.0.1:7001", Transport::Tls));
        assert_eq!(trust.identity, Some(("c".to_owned(), "k".to_owned())));
    }
}
