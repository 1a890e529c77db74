//! Which node is to lead which group of slots.
//!
//! Rule    nodes that know of the same nodes come to the same result, without a message.
//! Rule    a hint, and no decision of safety: a leader hands over in good order, as at its own end.

use parking_lot::Mutex;

use crate::state::acl::password::Digest;

/// Who is to lead each group, as far as a process knows of nodes.
#[derive(Debug)]
pub struct Balance {
    groups: u16,
    /// The nodes of which it was worked out, and by groups the place of each leader among them.
    latest: Mutex<(Vec<String>, Vec<usize>)>,
}

impl Balance {
    /// So many groups.
    pub fn new(groups: u16) -> Self {
        Self { groups, latest: Mutex::default() }
    }

    /// Whether the node of this name is to lead the group. `nodes` are the names of all that live.
    pub fn is_for(&self, name: &str, group: u16, mut nodes: Vec<String>) -> bool {
        nodes.sort();
        let latest = &mut *self.latest.lock();
        if latest.0 != nodes {
            latest.1 = leaders(self.groups, &nodes);
            latest.0 = nodes;
        }
        latest.1.get(usize::from(group)).is_some_and(|at| latest.0[*at] == name)
    }
}

/// By groups, the place of the node that is to lead it. Each group has an order of the nodes of its own, by digests, and
/// goes to the first of them that has fewer than its part of all groups. So a node that ends or comes moves few groups but
/// its own.
fn leaders(groups: u16, nodes: &[String]) -> Vec<usize> {
    let part = usize::from(groups).div_ceil(nodes.len().max(1));
    let mut led = vec![0; nodes.len()];
    let leader = |group: u16| {
        let rank = |at: &usize| Digest::of(format!("{group} {}", nodes[*at]).as_bytes()).hex();
        let leader = (0..nodes.len()).filter(|at| led[*at] < part).max_by_key(rank)?;
        led[leader] += 1;
        Some(leader)
    };
    (0..groups).map_while(leader).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("10.0.0.{number}:6379")).collect()
    }

    #[test]
    fn each_node_leads_its_part_and_no_more() {
        for (groups, nodes) in [(1, 1), (8, 1), (8, 2), (8, 3), (16, 5), (2, 3), (64, 7)] {
            let names = names(nodes);
            let led = leaders(groups, &names);
            assert_eq!(led.len(), usize::from(groups));
            let most = (0..nodes).map(|node| led.iter().filter(|at| **at == node).count()).max();
            assert!(
                most <= Some(usize::from(groups).div_ceil(nodes)),
                "{groups} groups, {nodes} nodes: {led:?}"
            );
        }
        assert!(leaders(4, &[]).is_empty());
    }

    #[test]
    fn a_node_that_ends_moves_few_groups_but_its_own() {
        let before_names = names(4);
        let before = leaders(64, &before_names);
        for gone in 0..4 {
            let mut after_names = before_names.clone();
            after_names.remove(gone);
            let after = leaders(64, &after_names);
            let moves =
                before.iter().zip(&after).filter(|(old, new)| before_names[**old] != after_names[**new]);
            let moved = moves.count();
            let own = before.iter().filter(|at| **at == gone).count();
            assert!(moved <= 2 * own, "{moved} of 64 groups move for {own}");
        }
    }

    #[test]
    fn the_result_is_the_same_at_every_node_and_follows_the_list() {
        let (here, there) = (Balance::new(8), Balance::new(8));
        let mut backwards = names(3);
        backwards.reverse();
        for group in 0..8 {
            let leads = |balance: &Balance, nodes: &Vec<String>| {
                names(3).into_iter().filter(|name| balance.is_for(name, group, nodes.clone())).collect()
            };
            let (one, other): (Vec<_>, Vec<_>) = (leads(&here, &names(3)), leads(&there, &backwards));
            assert_eq!((one.len(), &one), (1, &other));
            assert!(here.is_for("10.0.0.0:6379", group, names(1)), "the only one");
        }
    }
}
