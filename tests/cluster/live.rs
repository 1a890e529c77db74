//! The live checker of mutual exclusion on a cluster whose leader is killed, stopped or cut off, again and again.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::clients::program;
use super::harness::{Etcd, Host, Network, Node};
use super::porcupine::{self, Outcome};
use crate::locks::mutex::checker::Verdict;
use crate::locks::mutex::client::Role;
use crate::locks::mutex::harness::{Told, python};
use crate::locks::mutex::history::Call;
use crate::locks::mutex::takers::take_each_key_again;
use crate::locks::mutex::{check_run, lasts};
use crate::support::rng::tally;

const NODES: usize = 3;
/// How long the cluster is watched at least.
const WATCHED_FOR: Duration = Duration::from_secs(12);
/// Longer than a takeover takes.
const HARM_LASTS: Duration = Duration::from_millis(1_500);

/// How long another node takes to take over, and to end the sessions that it knows from the log, and some time more.
pub(super) const LONGER_THAN_SESSIONS: Duration = Duration::from_millis(2_500);

/// Nodes on these hosts, of which the first leads.
pub(super) fn start(endpoints: &str, hosts: &[Host]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for host in hosts {
        let mut node = Node::start_with(host, endpoints, &[]);
        node.wait_for(if nodes.is_empty() { "This node leads" } else { "Another node leads" });
        nodes.push(node);
    }
    nodes
}

/// Nodes on these hosts that share out [`GROUPS`], of which each leads some.
pub(super) fn start_groups(endpoints: &str, hosts: &[Host]) -> Vec<Node> {
    let groups = ["--cluster-groups", GROUPS];
    let mut nodes: Vec<Node> = hosts.iter().map(|host| Node::start_with(host, endpoints, &groups)).collect();
    for node in &mut nodes {
        node.wait_for("This node leads");
    }
    nodes
}

/// The locks of the checker are in three of so many groups of slots.
const GROUPS: &str = "8";

/// redis-py's Lock in cluster mode.
pub(super) fn python_in_groups() -> Vec<Command> {
    let mut commands = python();
    for command in &mut commands {
        command.env("REDLATCH_MUTEX_GROUPS", GROUPS);
    }
    commands
}

/// Runs the clients of the live checker through all nodes, and other programs through the first, while `strike` harms what it
/// likes every second or so.
pub(super) fn check_while(
    (name, lasts, told): (&str, Duration, Told),
    nodes: &mut [Node],
    others: Vec<Command>,
    mut strike: impl FnMut(&mut [Node]),
) -> (Verdict, Vec<Call>) {
    let addresses: Vec<_> = nodes.iter().map(Node::address).collect();
    let mut restart = || {
        strike(nodes);
        Ok(())
    };
    check_run(name, &addresses, lasts, (Role::Clients, others), (told, &mut restart))
}

/// Like [`try_with`] for a cluster of one group. `strike` is given the nodes, and the number of the one that leads.
fn try_while(
    what: (&str, Duration, Told),
    nodes: Vec<Node>,
    others: Vec<Command>,
    mut strike: impl FnMut(&mut [Node], usize),
) {
    try_with(what, nodes, others, |nodes| {
        let mut is_struck = false;
        strike_leader(nodes, |nodes, leader| {
            is_struck = true;
            strike(nodes, leader);
        });
        is_struck
    });
}

/// Like [`check_while`], and neither the checker nor Porcupine may find anything. `strike` says whether it has harmed
/// anything.
fn try_with(
    (name, lasts_min, told): (&str, Duration, Told),
    mut nodes: Vec<Node>,
    others: Vec<Command>,
    mut strike: impl FnMut(&mut [Node]) -> bool,
) {
    let mut strikes = 0;
    let (verdict, calls) = check_while((name, lasts().max(lasts_min), told), &mut nodes, others, |nodes| {
        strikes += u32::from(strike(nodes));
    });
    let found = verdict.unsafe_findings();
    for node in nodes.iter_mut().filter(|_| !found.is_empty()) {
        println!("The node at {}:\n{}", node.address(), node.log());
    }
    assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
    assert!(verdict.grants > 0 && verdict.extensions > 0 && verdict.tokens > 0, "{verdict:?}");
    assert!(strikes > 1, "{name}: {strikes} strikes");
    assert!(
        matches!(porcupine::check(&calls), None | Some(Outcome::Accepted)),
        "Porcupine finds no order of the calls"
    );
    println!("{name}: {strikes} strikes");
    tally(&[("faults", strikes.into())]);
}

/// Harms the nodes, unless it is not clear which one leads.
pub(super) fn strike_leader(nodes: &mut [Node], strike: impl FnOnce(&mut [Node], usize)) {
    let leaders: Vec<usize> = (0..nodes.len()).filter(|number| nodes[*number].leads()).collect();
    // One that was cut off may not know yet that another one leads.
    if let [leader] = leaders[..] {
        strike(nodes, leader);
    }
}

fn kill(node: &mut Node) {
    node.signal(Signal::SIGKILL);
    node.restart();
}

pub(super) fn stop_for_a_while(node: &mut Node) {
    stop_for(node, HARM_LASTS);
}

pub(super) fn stop_for(node: &mut Node, time: Duration) {
    node.signal(Signal::SIGSTOP);
    sleep(time);
    node.signal(Signal::SIGCONT);
}

/// Like [`try_while`], on one machine with one member of etcd, with harm to the leader.
fn try_while_leader(name: &str, told: Told, mut strike: impl FnMut(&mut Node)) {
    let etcd = Etcd::start_one(&[]);
    let nodes = start(&etcd.endpoints(), &[Host::local(), Host::local(), Host::local()]);
    try_while((name, WATCHED_FOR, told), nodes, python(), |nodes, leader| strike(&mut nodes[leader]));
}

// Shows P-answered-stays, P-replicated-one-holder, P-replicated-tokens-rise.
#[test]
#[ignore = "needs etcd"]
fn a_kill_of_the_leader_gives_no_lock_twice() {
    try_while_leader("cluster, leader killed", Told::First, kill);
}

/// Fifty processes take any one of ten keys, through both nodes. A run ends with an error if a take is not answered.
// Shows P-answered-stays, P-replicated-one-holder, P-replicated-tokens-rise.
#[test]
#[ignore = "needs etcd"]
fn takers_of_any_key_have_it_alone_and_no_key_is_lost_while_leaders_die() {
    let etcd = Etcd::start_one(&[]);
    let mut nodes = start(&etcd.endpoints(), &[Host::local(), Host::local()]);
    let addresses: Vec<_> = nodes.iter().map(Node::address).collect();
    let mut kills = 0;
    let mut restart = || {
        strike_leader(&mut nodes, |nodes, leader| {
            kill(&mut nodes[leader]);
            kills += 1;
        });
        Ok(())
    };
    let (name, clients) = ("cluster, any of ten keys, leader killed", (Role::Takers, Vec::new()));
    let lasts = lasts().max(WATCHED_FOR);
    let (verdict, _) = check_run(name, &addresses, lasts, clients, (Told::First, &mut restart));
    let found = verdict.unsafe_findings();
    assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
    assert!(verdict.grants > 0 && verdict.queued > 0 && verdict.releases > 0, "{verdict:?}");
    assert!(kills > 1, "{kills} kills");
    println!("{name}: {kills} kills");
    tally(&[("faults", kills)]);
    addresses.into_iter().for_each(take_each_key_again);
}

// Shows P-answered-stays, P-replicated-one-holder, P-replicated-tokens-rise.
#[test]
#[ignore = "needs etcd"]
fn a_leader_that_is_stopped_and_continued_gives_no_lock_twice() {
    try_while_leader("cluster, leader stopped", Told::Late, stop_for_a_while);
}

#[test]
#[ignore = "needs etcd"]
fn a_hand_over_gives_no_lock_twice() {
    try_while_leader("cluster, leader handed over", Told::First, |leader| {
        leader.signal(Signal::SIGTERM);
        assert_eq!(leader.end(), Some(0));
        leader.restart();
    });
}

/// Members of etcd, on the first hosts of the network. The nodes are on the next ones.
const MEMBERS: usize = 3;
/// How often a slow member stops for a moment.
const SLOW_ROUNDS: u32 = 15;

/// What happens to the cluster.
#[derive(Clone, Copy, Debug)]
enum Harm {
    KillsLeader,
    StopsLeader,
    CutsLeader,
    CutsStandby,
    /// Its clients reach it still.
    PartsLeaderFromEtcd,
    PartsLeaderFromNodes,
    /// It reaches etcd and the other nodes.
    PartsLeaderFromClients,
    KillsMember,
    StopsMember,
    CutsMember,
    StopsMajority,
    /// The others do not replace it.
    SlowsMember,
}

const HARMS: [Harm; 12] = [
    Harm::PartsLeaderFromEtcd,
    Harm::KillsLeader,
    Harm::CutsMember,
    Harm::CutsLeader,
    Harm::KillsMember,
    Harm::PartsLeaderFromNodes,
    Harm::PartsLeaderFromClients,
    Harm::StopsLeader,
    Harm::StopsMajority,
    Harm::CutsStandby,
    Harm::StopsMember,
    Harm::SlowsMember,
];

/// Carries out one harm, and undoes it.
fn harm(network: &Network, etcd: &mut Etcd, nodes: &mut [Node], leader: usize, harm: Harm) {
    let (host, member) = (MEMBERS + leader, etcd.leader());
    let cut = |host| {
        network.set_link(host, false);
        sleep(HARM_LASTS);
        network.set_link(host, true);
    };
    let part = |from: usize, count: usize| {
        let others = (from..from + count).filter(|other| *other != host);
        others.clone().for_each(|other| network.part(host, other, true));
        sleep(HARM_LASTS);
        others.for_each(|other| network.part(host, other, false));
    };
    let mut stop = |members: &[usize], lasts: Duration| {
        members.iter().for_each(|member| etcd.signal(*member, Signal::SIGSTOP));
        sleep(lasts);
        members.iter().for_each(|member| etcd.signal(*member, Signal::SIGCONT));
    };
    match harm {
        Harm::KillsLeader => kill(&mut nodes[leader]),
        Harm::StopsLeader => stop_for_a_while(&mut nodes[leader]),
        Harm::CutsLeader => cut(host),
        Harm::CutsStandby => cut(MEMBERS + (leader + 1) % NODES),
        Harm::PartsLeaderFromEtcd => part(0, MEMBERS),
        Harm::PartsLeaderFromNodes => part(MEMBERS, NODES),
        Harm::PartsLeaderFromClients => {
            network.part_from_clients(host, true);
            sleep(HARM_LASTS);
            network.part_from_clients(host, false);
        }
        Harm::StopsMember => stop(&[member], HARM_LASTS),
        Harm::CutsMember => cut(member),
        Harm::StopsMajority => stop(&[member, (member + 1) % MEMBERS], HARM_LASTS),
        Harm::SlowsMember => (0..SLOW_ROUNDS).for_each(|_| {
            stop(&[member], HARM_LASTS / SLOW_ROUNDS);
            sleep(HARM_LASTS / SLOW_ROUNDS / 10);
        }),
        Harm::KillsMember => {
            etcd.signal(member, Signal::SIGKILL);
            etcd.restart(member);
        }
    }
}

/// Unchanged clients: redis-py through the first node, and others that ask all nodes, as Sentinels, who leads.
fn unchanged_clients(nodes: &[Node]) -> Vec<Command> {
    let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    let script = |name: &str| format!("{}/tests/locks/mutex/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut commands = vec![
        program("python", &["venv/bin/python", &script("redis_py_lock.py")]),
        program("node", &["node", &script("ioredis_lock.cjs")]),
        program("go", &["bin/locks", "history"]),
        program("redisson", &["java", "-cp", "target/classes:target/lib/*", "RedissonHistory"]),
    ];
    for command in &mut commands {
        command.env("REDLATCH_MUTEX_SENTINELS", addresses.join(","));
    }
    commands
}

/// Members and nodes each on a host of a network.
fn in_a_network() -> (Network, Etcd, Vec<Node>) {
    let network = Network::new((MEMBERS + NODES) as u8);
    let etcd = Etcd::start(&network.hosts[..MEMBERS], &[]);
    let nodes = start(&etcd.endpoints(), &network.hosts[MEMBERS..]);
    (network, etcd, nodes)
}

// Shows P-session-told-first.
#[test]
#[ignore = "needs etcd, ip and root"]
fn a_leader_that_is_cut_from_etcd_ends_sessions_before_their_locks_are_granted_again() {
    let (network, _etcd, nodes) = in_a_network();
    let name = "cluster, leader cut from etcd";
    try_while((name, WATCHED_FOR, Told::First), nodes, Vec::new(), |_, leader| {
        let part = |is_parted| {
            (0..MEMBERS).for_each(|member| network.part(MEMBERS + leader, member, is_parted));
        };
        part(true);
        sleep(LONGER_THAN_SESSIONS);
        part(false);
    });
}

// Shows P-answered-stays, P-replicated-one-holder, P-replicated-tokens-rise.
#[test]
#[ignore = "needs etcd, ip, root, and the packages of tests/clients"]
fn no_harm_to_links_members_and_nodes_gives_a_lock_twice() {
    let (network, mut etcd, nodes) = in_a_network();
    let mut turn = 0;
    let clients = unchanged_clients(&nodes);
    try_while(("cluster in a network", 5 * WATCHED_FOR, Told::Late), nodes, clients, |nodes, leader| {
        harm(&network, &mut etcd, nodes, leader, HARMS[turn % HARMS.len()]);
        turn += 1;
    });
    assert!(turn >= HARMS.len(), "each harm has come");
}

/// Clients go to the leader that MOVED names. Each node leads some of the groups, and each is harmed in turn.
#[test]
#[ignore = "needs etcd, ip, root, and the packages of tests/clients"]
fn no_harm_to_links_members_and_nodes_gives_a_lock_of_a_group_twice() {
    let network = Network::new((MEMBERS + NODES) as u8);
    let mut etcd = Etcd::start(&network.hosts[..MEMBERS], &[]);
    let nodes = start_groups(&etcd.endpoints(), &network.hosts[MEMBERS..]);
    let mut turn = 0;
    let name = "groups in a network";
    try_with((name, 5 * WATCHED_FOR, Told::Late), nodes, python_in_groups(), |nodes| {
        harm(&network, &mut etcd, nodes, (turn + turn / HARMS.len()) % NODES, HARMS[turn % HARMS.len()]);
        turn += 1;
        true
    });
    assert!(turn >= HARMS.len(), "each harm has come");
}
