//! The files for deployment with `cluster-etcd` added to what they set: a node leads, another one is a standby, and both are
//! measured.

use super::harness::{Etcd, wait_until};
use crate::operations::service::deploy::{environments, get};
use crate::support::binary::{Directory, Running, redlatch};

/// The value of a sample without labels in the metrics of a node.
fn value<'m>(metrics: &'m str, name: &str) -> Option<&'m str> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

#[test]
#[ignore = "needs etcd"]
fn the_settings_of_units_images_and_manifests_serve_nodes_as_well() {
    let etcd = Etcd::start_one(&[]);
    let directory = Directory::new();
    for (number, (file, mut environment)) in environments(&directory.path("journal")).into_iter().enumerate()
    {
        environment.push(("REDLATCH_CLUSTER_ETCD".to_owned(), etcd.endpoints()));
        environment.push(("REDLATCH_CLUSTER_PREFIX".to_owned(), format!("/deployed/{number}/")));
        let start = || Running::start(redlatch().envs(environment.clone()));
        let leader = start();
        let http = leader.address_of("http");
        wait_until("a leader", || get(&http, "/readyz").starts_with("HTTP/1.1 200 "));
        let standby = start();
        let led = get(&http, "/metrics");
        assert_eq!(value(&led, "redlatch_leads"), Some("1"), "{file}: {led}");
        let stood_by = get(&standby.address_of("http"), "/metrics");
        assert!(stood_by.starts_with("HTTP/1.1 200 "), "{file}: {stood_by}");
        assert_eq!(value(&stood_by, "redlatch_leads"), Some("0"), "{file}: {stood_by}");
        assert_eq!(
            std::fs::exists(directory.path("journal/data")).ok(),
            Some(false),
            "{file}: there is no journal"
        );
    }
}
