//! Redis Cluster: which node serves which slots, as any node of a cluster says it.
//!
//! Rule    a node that serves all slots is asked where it was found: the address that it names may be none that is reached
//!         here.

use std::ops::RangeInclusive;

use super::connection::Connection;
use super::error::Error;
use super::target::{Target, Transport};
use crate::received::Reply;

/// A node that serves slots: one of a cluster, or a server that is not in cluster mode and has all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Master {
    pub(crate) target: Target,
    /// Its slots, in their order.
    pub(crate) slots: Vec<RangeInclusive<u16>>,
}

impl Master {
    /// A server that serves all slots.
    pub(crate) fn alone(target: &Target) -> Self {
        Self { target: target.clone(), slots: vec![0..=LAST_SLOT] }
    }
}

/// The nodes that serve slots, in the order of these, as the node at the other end of the connection says. `asked` is its
/// target.
///
/// # Errors
/// The node cannot be asked, or refuses.
pub(crate) async fn masters(connection: &mut Connection, asked: &Target) -> Result<Vec<Master>, Error> {
    if !connection.is_in_cluster() {
        return Ok(vec![Master::alone(asked)]);
    }
    let reply = connection.call(&[b"CLUSTER", b"SLOTS"]).await?;
    let mut ranges: Vec<_> = reply.items().iter().filter_map(|range| read_range(range, asked)).collect();
    ranges.sort_by_key(|(slots, _)| *slots.start());
    let mut masters: Vec<Master> = Vec::new();
    for (slots, target) in ranges {
        match masters.iter_mut().find(|master| master.target == target) {
            Some(master) => master.slots.push(slots),
            None => masters.push(Master { target, slots: vec![slots] }),
        }
    }
    match &masters[..] {
        [one] if one.slots == [0..=LAST_SLOT] => Ok(vec![Master::alone(asked)]),
        _ => Ok(masters),
    }
}

/// The slots that no node serves, in their order. `served`: those that one does.
pub(crate) fn unserved<'s>(
    served: impl Iterator<Item = &'s RangeInclusive<u16>>,
) -> Vec<RangeInclusive<u16>> {
    let mut served: Vec<_> = served.collect();
    served.sort_by_key(|slots| *slots.start());
    let (mut gaps, mut next) = (Vec::new(), 0);
    for slots in served {
        if *slots.start() > next {
            gaps.push(next..=*slots.start() - 1);
        }
        next = next.max(slots.end().saturating_add(1));
    }
    if next <= LAST_SLOT {
        gaps.push(next..=LAST_SLOT);
    }
    gaps
}

/// Where a key is served; `None`: by the node that was asked.
///
/// # Errors
/// No node serves the slot of the key, or the node cannot be asked, or refuses.
pub(crate) async fn owner(
    connection: &mut Connection,
    masters: &[Master],
    key: &[u8],
) -> Result<Option<Target>, Error> {
    if matches!(masters, [one] if one.slots == [0..=LAST_SLOT]) {
        return Ok(None);
    }
    let slot = connection.call(&[b"CLUSTER", b"KEYSLOT", key]).await?.integer();
    let slot = slot.and_then(|slot| u16::try_from(slot).ok());
    let slot = slot.ok_or_else(|| Error::Broken("CLUSTER KEYSLOT: not a slot".to_owned()))?;
    let has = |master: &&Master| master.slots.iter().any(|slots| slots.contains(&slot));
    match masters.iter().find(has) {
        Some(master) => Ok(Some(master.target.clone())),
        None => Err(Error::Refused(format!("CLUSTERDOWN no node serves slot {slot}"))),
    }
}

/// A range of CLUSTER SLOTS, and its master. A node without an address is where the other node was asked.
fn read_range(reply: &Reply, asked: &Target) -> Option<(RangeInclusive<u16>, Target)> {
    let [first, last, master, ..] = reply.items() else { return None };
    let [host, port, ..] = master.items() else { return None };
    let number = |reply: &Reply| u16::try_from(reply.integer()?).ok();
    let host = host.text().map(|host| String::from_utf8_lossy(host).into_owned());
    let host = match host.filter(|host| !host.is_empty() && host != "?") {
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host,
        None if asked.transport == Transport::Unix => "127.0.0.1".to_owned(),
        None => asked.address.rsplit_once(':').map_or(asked.address.as_str(), |(host, _)| host).to_owned(),
    };
    let transport = match asked.transport {
        Transport::Unix => Transport::Tcp,
        transport => transport,
    };
    let target = Target { address: format!("{host}:{}", number(port)?), transport, ..asked.clone() };
    Some((number(first)?..=number(last)?, target))
}

const LAST_SLOT: u16 = 16_383;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    fn range(first: i64, last: i64, host: Reply, port: i64) -> Reply {
        let node = Reply::List(vec![host, Reply::Integer(port), text("id")]);
        Reply::List(vec![Reply::Integer(first), Reply::Integer(last), node])
    }

    #[test]
    fn a_range_names_the_address_of_its_master_or_that_of_the_node_that_was_asked() {
        let asked = Target::parse("rediss://me:secret@asked:7000").unwrap();
        for (host, address) in [
            (text("10.0.0.1"), "10.0.0.1:7001"),
            (text("::1"), "[::1]:7001"),
            (text(""), "asked:7001"),
            (text("?"), "asked:7001"),
            (Reply::Null, "asked:7001"),
        ] {
            let (slots, target) = read_range(&range(5, 9, host, 7001), &asked).unwrap();
            assert_eq!((slots, &*target.address, &*target.password), (5..=9, address, "secret"));
            assert_eq!(target.transport, Transport::Tls);
        }
        let asked = Target::parse("unix:///run/socket").unwrap();
        let (_, target) = read_range(&range(5, 9, text(""), 7001), &asked).unwrap();
        assert_eq!((&*target.address, target.transport), ("127.0.0.1:7001", Transport::Tcp));
        assert_eq!(read_range(&range(5, 70_000, text("a"), 7001), &asked), None);
        assert_eq!(read_range(&text("a"), &asked), None);
    }

    #[test]
    fn slots_that_no_node_serves_are_named() {
        let of = |ranges: &[RangeInclusive<u16>]| unserved(ranges.iter());
        assert_eq!(of(&[]), [0..=16_383]);
        assert_eq!(of(&[0..=16_383]), []);
        assert_eq!(of(&[8192..=16_000, 5..=99]), [0..=4, 100..=8191, 16_001..=16_383]);
    }
}
