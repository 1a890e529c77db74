//! Which nodes may be asked to lead a group of slots, of those that live.
//!
//! Owns    for how long this node is not asked for a group that it has given up.
//! Rule    nodes that know of the same nodes come to the same result. A hint, and no decision of safety.
//! Rule    users, passwords and names agree: the nodes of a minority lead nothing while others live.
//! Rule    a node that gave a group up, because nobody reached it, is not asked for it for a while, which doubles each time
//!         that it gives up again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a node is not asked for a group that it has given up, at first and at most.
const REST_MIN: Duration = Duration::from_secs(60);
const REST_MAX: Duration = Duration::from_secs(600);

/// A node that lives.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    /// That of its users; none: it is of an older version, and agrees with all.
    pub(super) digest: Option<String>,
    /// Whether it leads the first group.
    pub(super) leads_first: bool,
    /// Whether it has given the group up lately.
    pub(super) rests: bool,
}

/// The names of those that may be asked.
pub(super) fn names(mut nodes: Vec<Candidate>) -> Vec<String> {
    if let Some(agreed) = agreed_digest(&nodes) {
        nodes.retain(|node| node.digest.as_ref().is_none_or(|digest| *digest == agreed));
    }
    if nodes.iter().any(|node| !node.rests) {
        nodes.retain(|node| !node.rests);
    }
    nodes.into_iter().map(|node| node.name).collect()
}

/// The digest that most nodes have; of several, that of the leader of the first group. `None`: nobody knows.
fn agreed_digest(nodes: &[Candidate]) -> Option<String> {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for digest in nodes.iter().filter_map(|node| node.digest.as_ref()) {
        *counts.entry(digest).or_default() += 1;
    }
    let most = counts.values().max().copied()?;
    counts.retain(|_, count| *count == most);
    let of_first = nodes.iter().find(|node| node.leads_first).and_then(|node| node.digest.as_ref());
    match counts.len() {
        1 => counts.into_keys().next().cloned(),
        _ => of_first.filter(|digest| counts.contains_key(digest)).cloned(),
    }
}

/// The groups that a node has given up.
#[derive(Debug, Default)]
pub(super) struct Rests(Mutex<BTreeMap<u16, Rest>>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    time: Duration,
}

impl Rests {
    /// A group is given up after it was led for so long.
    pub(super) fn give_up(&self, group: u16, led_for: Duration) {
        let mut rests = self.0.lock();
        let before = rests.get(&group).filter(|rest| led_for <= rest.time);
        let time = before.map_or(REST_MIN, |rest| (2 * rest.time).min(REST_MAX));
        rests.insert(group, Rest { until: Instant::now() + time, time });
    }

    /// Whether this node is not asked for the group.
    pub(super) fn has(&self, group: u16) -> bool {
        self.0.lock().get(&group).is_some_and(|rest| Instant::now() < rest.until)
    }

    /// The groups for which it is not asked.
    pub(super) fn groups(&self) -> Vec<u16> {
        let now = Instant::now();
        let rests = self.0.lock();
        rests.iter().filter(|(_, rest)| now < rest.until).map(|(group, _)| *group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, digest: &str) -> Candidate {
        let digest = Some(digest.to_owned()).filter(|digest| !digest.is_empty());
        Candidate { name: name.to_owned(), digest, leads_first: false, rests: false }
    }

    #[test]
    fn a_node_with_other_passwords_is_not_asked_while_others_agree() {
        let three = vec![node("a", "new"), node("b", "old"), node("c", "old")];
        assert_eq!(names(three.clone()), ["b", "c"]);
        let changed = vec![node("a", "new"), node("b", "new"), node("c", "old")];
        assert_eq!(names(changed), ["a", "b"]);
        assert_eq!(names(three[..1].to_vec()), ["a"], "the only one");
        assert_eq!(
            names(vec![node("a", "new"), node("b", "old"), node("c", "")]),
            ["a", "b", "c"],
            "nobody knows"
        );
        let leader = Candidate { leads_first: true, ..node("b", "old") };
        assert_eq!(names(vec![node("a", "new"), leader, node("c", "")]), ["b", "c"]);
    }

    #[test]
    fn a_node_that_gave_a_group_up_is_not_asked_while_others_live() {
        let resting = Candidate { rests: true, ..node("a", "x") };
        assert_eq!(names(vec![resting.clone(), node("b", "x")]), ["b"]);
        assert_eq!(names(vec![resting.clone(), node("b", "y"), node("c", "y")]), ["b", "c"]);
        assert_eq!(names(vec![resting]), ["a"]);
    }

    #[test]
    fn a_rest_doubles_until_the_node_has_led_for_longer() {
        let rests = Rests::default();
        let time = |rests: &Rests| rests.0.lock()[&3].time;
        for _ in 0..3 {
            rests.give_up(3, Duration::from_secs(5));
        }
        assert_eq!(time(&rests), 4 * REST_MIN);
        assert!(rests.has(3) && !rests.has(4));
        assert_eq!(rests.groups(), [3]);
        for _ in 0..10 {
            rests.give_up(3, Duration::from_secs(5));
        }
        assert_eq!(time(&rests), REST_MAX);
        rests.give_up(3, REST_MAX + Duration::from_secs(1));
        assert_eq!(time(&rests), REST_MIN);
    }
}
