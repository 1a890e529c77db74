//! Whether what clients have read and written of one key fits one order.
//!
//! Source  Gibbons and Korach, "Testing shared memories", 1997: where every value is written once, a history is linearizable
//!         if no two forward zones overlap and no backward zone lies in a forward zone.

use std::collections::BTreeMap;

/// A read or a write of the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) is_write: bool,
    /// What was written, or read. `None`: the key had no value, as in the beginning.
    pub(super) value: Option<u64>,
    /// The step at which it was sent, and that at which its reply arrived. No reply: a write may happen at any time.
    pub(super) from: u64,
    pub(super) to: Option<u64>,
}

/// When a value is there at least, from the end of an operation to the beginning of another one; or, if that is backwards,
/// when it may have been there.
#[derive(Clone, Copy, Debug)]
struct Zone {
    first_end: u64,
    last_begin: u64,
}

/// Checks the history of a key. All steps are different, and above 0.
pub(super) fn check(history: &[Operation]) -> Result<(), String> {
    let first = Operation { is_write: true, value: None, from: 0, to: Some(0) };
    let mut by_value: BTreeMap<Option<u64>, Vec<Operation>> = BTreeMap::from([(None, vec![first])]);
    for operation in history.iter().filter(|operation| operation.is_write || operation.to.is_some()) {
        by_value.entry(operation.value).or_default().push(*operation);
    }
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for (value, operations) in by_value {
        let write = operations.iter().find(|operation| operation.is_write);
        let write = write.ok_or_else(|| format!("{value:?} was read, and never written"))?;
        if let Some(read) = operations.iter().find(|read| read.to.is_some_and(|to| to < write.from)) {
            return Err(format!("{read:?} is before {write:?}"));
        }
        let first_end = operations.iter().filter_map(|operation| operation.to).min();
        let last_begin = operations.iter().map(|operation| operation.from).max();
        // A write without a reply that nobody has read may never have happened.
        let (Some(first_end), Some(last_begin)) = (first_end, last_begin) else { continue };
        let zone = Zone { first_end, last_begin };
        if first_end < last_begin { forward.push((value, zone)) } else { backward.push((value, zone)) }
    }
    forward.sort_by_key(|(_, zone)| zone.first_end);
    for pair in forward.windows(2) {
        if pair[1].1.first_end < pair[0].1.last_begin {
            return Err(format!("{:?} is there again after {:?}", pair[0], pair[1]));
        }
    }
    for (value, zone) in backward {
        let around = forward
            .iter()
            .find(|(_, other)| other.first_end < zone.last_begin && zone.first_end < other.last_begin);
        if let Some(around) = around {
            return Err(format!("{value:?}, {zone:?}, was there while {around:?} was"));
        }
    }
    Ok(())
}

// Breaks P-reads-linearizable.
#[test]
fn stale_reads_and_lost_writes_are_found() {
    let write = |value, from, to| Operation { is_write: true, value: Some(value), from, to };
    let read = |value, from, to| Operation { is_write: false, value, from, to: Some(to) };
    let is_fine = |history: &[Operation]| check(history).is_ok();
    let (first, second) = (write(1, 1, Some(2)), write(2, 3, Some(6)));
    assert!(is_fine(&[first, second, read(Some(1), 4, 5), read(Some(2), 7, 8)]));
    assert!(!is_fine(&[first, second, read(Some(1), 7, 8)]), "a stale read");
    assert!(!is_fine(&[first, read(None, 7, 8)]), "a lost write");
    assert!(!is_fine(&[first, second, read(Some(2), 4, 5), read(Some(1), 7, 8)]), "back again");
    assert!(!is_fine(&[read(Some(1), 3, 4), write(1, 5, Some(6))]), "before it was written");
    assert!(!is_fine(&[first, read(Some(9), 3, 4)]), "never written");
    // A write without a reply happens at any time later, or never.
    let lost = write(3, 9, None);
    assert!(is_fine(&[first, lost, read(Some(1), 10, 11), read(Some(3), 12, 13)]));
    assert!(is_fine(&[first, lost, read(Some(1), 10, 11)]));
    assert!(!is_fine(&[first, lost, read(Some(3), 10, 11), read(Some(1), 12, 13)]));
    // Both began and ended while the key had another value all the time.
    let inside = write(4, 14, Some(15));
    assert!(!is_fine(&[first, read(Some(1), 10, 13), read(Some(1), 17, 18), inside]));
}
