//! The start of the process as a server: its settings, its log, its spans, the sockets that it inherits.
//!
//! Rule    the log is open before a setting is refused: the refusal is a line of it.

use std::process::ExitCode;

use super::arguments::ServerArguments;
use super::configuration::Sources;
use super::{daemon, log, otlp, serve, systemd};
use crate::common::Fault;

/// Serves until it is ended. `program` is the name that the process was started by.
///
/// # Errors
/// The reason why the server does not start.
pub(crate) fn run(program: &str, arguments: &ServerArguments) -> Result<ExitCode, Fault> {
    let sources = Sources::read(arguments);
    if daemon::is_wanted(&sources, arguments) {
        return daemon::start(program, arguments);
    }
    // First: the numbers of inherited sockets are those that files of this process would have.
    let inherited = systemd::inherited();
    let output = log::Output::new(&sources.value("logfile"), arguments.harness.is_ready_told)?;
    let (spans, exporter) = match otlp::open(&sources.value("otlp-endpoint")) {
        Ok(Some((spans, exporter))) => (Some(spans), Ok(Some(exporter))),
        Ok(None) => (None, Ok(None)),
        Err(fault) => (None, Err(fault)),
    };
    let (file, format) = (output.file(), sources.value("log-format"));
    let format = match format.as_str() {
        "" | "auto" if serve::name_of_peer(program).is_some() => "redis",
        format => format,
    };
    let set_level = log::open(&sources.value("loglevel"), format, output, spans);
    let served = sources.check().and_then(|settings| {
        let (exporter, log) = (exporter?, serve::Log { file, set_level });
        let process = serve::Process { program, arguments, inherited: inherited?, log, exporter };
        #[cfg(feature = "testing")]
        if let Some(server) = super::explored::server(program) {
            return super::explored::serve(&process, &settings, server);
        }
        serve::serve(process, settings)
    });
    served.inspect_err(|fault| tracing::error!(reason = fault, "Cannot start"))
}
