//! A `redis-server` that an explored command starts: its clients are those of the explored server.
//!
//! Owns    the port that the command expects, and a connection to the explored server for each client.
//! Rule    bytes pass as they are, and when one side closes, the other one is closed. A reset arrives as an end.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use redlatch_core::state::settings::{self, Settings};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::configuration::Configuration;
use super::harness;
use super::serve::{self, Process};
use super::served::Listening;
use crate::common::{Fault, print, runtime, signals};

/// The variable of an explored run with the address of its first server.
pub(crate) const SERVER_VARIABLE: &str = "REDLATCH_EXPLORED";

/// The server of the search that this process is part of, if it was started as one of Redis.
pub(super) fn server(program: &str) -> Option<SocketAddr> {
    serve::name_of_peer(program)?;
    std::env::var(SERVER_VARIABLE).ok()?.parse().ok()
}

/// Passes on what comes to the port until a signal ends the process. Only `port` counts of the settings.
///
/// # Errors
/// The reason why nobody can connect.
pub(super) fn serve(
    process: &Process<'_>,
    configuration: &Configuration,
    to: SocketAddr,
) -> Result<ExitCode, Fault> {
    process.arguments.harness.check()?;
    let settings = Settings::default();
    configuration.builder(&settings)?;
    let port = settings.get(settings::PORT);
    if port == "0" {
        return Err("port '0': under redlatch explore, the clients need a port".to_owned());
    }
    // `auto` is any free one.
    let port = port.parse().unwrap_or(0);
    serve::log_start(process.program, &configuration.ignored);
    runtime()?.block_on(async {
        let mut signals = signals()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.map_err(|error| format!("port '{port}': {error}"))?;
        let tcp = listener.local_addr().map_err(|error| format!("port '{port}': {error}"))?;
        tracing::info!(%tcp, "Ready to accept connections");
        if process.arguments.harness.is_ready_told {
            let listening = Listening { tcp: vec![tcp], nodes: vec![tcp], ..Listening::default() };
            print(harness::ready_line(&listening, "").as_bytes())?;
        }
        tokio::select! {
            ended = accept(&listener, to) => ended.map_err(|error| format!("port '{port}': {error}"))?,
            _ = process.arguments.harness.reason_to_end() => {}
            () = signals.end() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn accept(listener: &TcpListener, to: SocketAddr) -> std::io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(pass(client, to));
    }
}

/// Passes bytes between a client and the server until one of both closes, or cannot be reached.
async fn pass(mut client: TcpStream, to: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
