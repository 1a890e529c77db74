//! The environment: variables that are settings, and those that nothing reads.
//!
//! Rule    a variable whose name begins as ours and that nothing reads is a typing error, and refused as in a file.
//!         Kubernetes and Docker set such names for a service or a container called redlatch: these are no errors.
//! Source  Kubernetes "Services, Environment variables"; Docker "Legacy container links".

use std::collections::BTreeMap;
use std::ffi::OsString;

use redlatch_core::state::settings_table::ROWS;
use strsim::levenshtein;

use super::arguments::{VARIABLE_PREFIX, variable};
use super::file::{Directive, Found};

/// What follows the prefix in variables that are no settings.
const OTHERS: &[&str] = &[
    // Read by the subcommands and by the packages for other languages.
    "BINARY", "EXPLORED", "INJECTED", "OBSERVED_PASSWORD", "TIMELINE", "URL",
    // Set by `redlatch run` for its command.
    "DEADLINE", "KEY", "OWNER", "TOKEN",
    // Read by the tests and benchmarks of this project, which start servers.
    "CLIENTS", "ETCD", "INSTALL_CLIENTS", "KEVY", "MEASURE", "PROMETHEUS_PYTHON", "PYTHON", "REDIS_8_SERVER",
    "REDIS_SERVER", "REQUIRE_CLIENTS", "REQUIRE_DATABASES", "SCRIPTS_DIR", "SERVER", "STATIC_BINARY",
    "TAKES", "VALKEY_SERVER",
];

/// Letters that a misspelt name may differ in from the one that is meant.
const MISSPELT_MAX: usize = 2;

/// Adds the settings of these variables to `found`, and a fault for each variable that nothing reads. An empty variable
/// counts as not set.
pub(super) fn read(variables: impl Iterator<Item = (OsString, OsString)>, found: &mut Found) {
    let ours = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    for (name, value) in ours.collect::<BTreeMap<_, _>>() {
        let Some(rest) = name.strip_prefix(VARIABLE_PREFIX).filter(|_| !value.is_empty()) else { continue };
        let row = ROWS.iter().find(|row| variable(row.name) == name);
        match (row, value.into_string()) {
            // Kubernetes sets REDLATCH_PORT=tcp://.. for a service called redlatch.
            (_, Ok(value)) if is_address(&value) || is_link(rest) => {}
            (Some(row), Ok(value)) => {
                found.directives.push(Directive {
                    name: row.name.to_owned(),
                    words: vec![value],
                    origin: name,
                });
            }
            (Some(row), Err(_)) => found.faults.push(format!("{}: must be UTF-8 ({name})", row.name)),
            (None, _) if OTHERS.contains(&rest) => {}
            (None, _) => found.faults.push(format!("nothing reads the variable {name}{}", nearest(rest))),
        }
    }
}

fn is_address(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// Whether Kubernetes or Docker sets variables of this form.
fn is_link(rest: &str) -> bool {
    let words: Vec<&str> = rest.split('_').collect();
    let is_service = |pair: &[&str]| matches!(pair, ["SERVICE", "HOST" | "PORT"]);
    let is_port = |parts: &[&str]| match parts {
        ["PORT", number, "TCP" | "UDP" | "SCTP"] => number.parse::<u16>().is_ok(),
        _ => false,
    };
    rest == "NAME"
        || rest.starts_with("ENV_")
        || words.windows(2).any(is_service)
        || words.windows(3).any(is_port)
}

/// The question whether a setting is meant, if the name of one is nearly the same.
fn nearest(rest: &str) -> String {
    let plain = |name: &str| name.replace('_', "");
    let near = ROWS.iter().map(|row| {
        let name = variable(row.name);
        (levenshtein(&plain(rest), &plain(&name[VARIABLE_PREFIX.len()..])), name)
    });
    let meant = near.min().filter(|(letters, _)| *letters <= MISSPELT_MAX);
    meant.map_or_else(String::new, |(_, name)| format!(": did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Found {
        let mut found = Found::default();
        read(variables.iter().map(|(name, value)| (name.into(), value.into())), &mut found);
        found
    }

    #[test]
    fn a_variable_that_is_empty_or_from_kubernetes_counts_as_not_set() {
        let found = found(&[
            ("REDLATCH_PORT", "tcp://10.0.0.1:6379"),
            ("REDLATCH_PORT_FILE", ""),
            ("REDLATCH_REQUIREPASS", "secret"),
        ]);
        assert!(found.faults.is_empty(), "{found:?}");
        let [only] = &found.directives[..] else { panic!("{found:?}") };
        assert_eq!((only.name.as_str(), only.origin.as_str()), ("requirepass", "REDLATCH_REQUIREPASS"));
    }

    #[test]
    fn variables_of_a_service_or_a_container_called_redlatch_are_no_errors() {
        for (name, value) in [
            ("SERVICE_HOST", "10.0.0.1"),
            ("SERVICE_PORT", "6379"),
            ("SERVICE_PORT_REDIS", "6379"),
            ("PORT_6379_TCP", "tcp://10.0.0.1:6379"),
            ("PORT_6379_TCP_PROTO", "tcp"),
            ("PORT_6379_UDP_PORT", "6379"),
            ("PORT_6379_TCP_ADDR", "10.0.0.1"),
            ("PAGE_PORT", "tcp://10.0.0.1:80"),
            ("PAGE_SERVICE_HOST", "10.0.0.1"),
            ("PAGE_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("NAME", "/web/redlatch"),
            ("ENV_PATH", "/bin"),
        ] {
            let found = found(&[(&format!("REDLATCH_{name}"), value)]);
            assert!(found.faults.is_empty() && found.directives.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_variable_that_nothing_reads_is_refused_and_the_one_that_is_meant_is_named() {
        for (name, meant) in [
            ("REQUIRE_PASS", ": did you mean REDLATCH_REQUIREPASS?"),
            ("MAX_MEMORY", ": did you mean REDLATCH_MAXMEMORY?"),
            ("HTPP_PORT", ": did you mean REDLATCH_HTTP_PORT?"),
            ("PASSWORD", ""),
            ("PORT_FILE_TCP", ""),
            ("SERVICE", ""),
        ] {
            let said = found(&[(&format!("REDLATCH_{name}"), "1")]).faults;
            assert_eq!(said, [format!("nothing reads the variable REDLATCH_{name}{meant}")]);
        }
        assert!(found(&[("REDLATCH_URL", "x"), ("REDLATCHED", "x"), ("OTHER", "x")]).faults.is_empty());
    }
}
