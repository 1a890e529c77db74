//! Streams against a simple map, and where nodes end.

use std::collections::BTreeMap;

use super::*;

type Model = BTreeMap<StreamId, Vec<Vec<u8>>>;

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

fn entries(stream: &Stream) -> Model {
    let mut found = Model::new();
    let mut ids = Vec::new();
    let all = StreamId::MIN..=StreamId::MAX;
    let count = stream.visit(all.clone(), false, usize::MAX, |entry| {
        let words = entry.pairs().flat_map(|(field, value)| [field.to_vec(), value.to_vec()]);
        let words: Vec<_> = words.collect();
        assert_eq!(words.len(), 2 * entry.len);
        ids.push(entry.id);
        found.insert(entry.id, words);
    });
    assert_eq!((count, found.len()), (stream.len(), stream.len()));
    let mut reversed = Vec::new();
    stream.visit(all, true, usize::MAX, |entry| reversed.push(entry.id));
    reversed.reverse();
    assert_eq!(reversed, ids);
    assert!(ids.is_sorted());
    let bytes: usize = stream.nodes.iter().map(|node| node.heap_bytes()).sum();
    assert_eq!(stream.node_bytes, bytes);
    found
}

/// Numbers below the one asked for, always the same ones.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn it_does_what_a_simple_map_does() {
    for seed in 0..20 {
        let mut random = numbers(seed);
        let (mut stream, mut model) = (Stream::new(), Model::new());
        for _ in 0..800 {
            let last = stream.last_id();
            match random(12) {
                0 => {
                    let gone = id(random(40), random(9));
                    assert_eq!(stream.delete(gone), model.remove(&gone).is_some());
                }
                1 if random(8) == 0 => {
                    let most = random(400);
                    let trim = Trim { keep: Keep::Last(most), is_approximate: false, limit: 0 };
                    let surplus = model.len().saturating_sub(most as usize);
                    assert_eq!(stream.trim(trim), surplus);
                    (0..surplus).for_each(|_| drop(model.pop_first()));
                }
                2 if random(8) == 0 => {
                    let from = id(last.ms.saturating_sub(random(20)), random(9));
                    let trim = Trim { keep: Keep::From(from), is_approximate: false, limit: 0 };
                    let stays = model.split_off(&from);
                    assert_eq!(stream.trim(trim), model.len());
                    model = stays;
                }
                _ => {
                    let next = id(last.ms + random(2), last.seq + 1 + random(3));
                    let pairs = 1 + random(3);
                    let word = |number| vec![b'a' + (number % 3) as u8; (number * 7) as usize];
                    let words: Vec<_> = (0..2 * pairs).map(|_| word(random(9))).collect();
                    stream.append(next, &words.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    model.insert(next, words);
                }
            }
            assert_eq!(stream.len(), model.len());
        }
        assert_eq!(entries(&stream), model, "seed {seed}");
        for _ in 0..50 {
            let mut bound = || id(random(stream.last_id().ms + 2), random(9));
            let (from, to) = (bound(), bound());
            let wanted: Vec<_> = model.keys().copied().filter(|id| (from..=to).contains(id)).collect();
            for most in [3, usize::MAX] {
                let (mut ahead, mut back) = (Vec::new(), Vec::new());
                let count = stream.visit(from..=to, false, most, |entry| ahead.push(entry.id));
                stream.visit(from..=to, true, most, |entry| back.push(entry.id));
                assert_eq!(count, wanted.len().min(most));
                assert!(ahead.iter().eq(wanted.iter().take(most)));
                assert!(back.iter().eq(wanted.iter().rev().take(most)));
            }
        }
    }
}

fn filled(len: u64) -> Stream {
    let mut stream = Stream::new();
    (1..=len).for_each(|ms| stream.append(id(ms, 0), &[b"field", b"value"]));
    stream
}

#[test]
fn a_node_takes_a_hundred_entries_and_an_approximate_trim_takes_whole_nodes() {
    let mut stream = filled(250);
    assert_eq!(stream.nodes.iter().map(|node| node.live).collect::<Vec<_>>(), [100, 100, 50]);
    let trim = |most, limit| Trim { keep: Keep::Last(most), is_approximate: true, limit };
    assert_eq!(stream.trim(trim(151, 0)), 0);
    assert_eq!(stream.trim(trim(10, 99)), 0);
    assert_eq!(stream.trim(trim(10, 100)), 100);
    assert_eq!(stream.trim(trim(10, 0)), 100);
    let trim = |from| Trim { keep: Keep::From(id(from, 0)), is_approximate: true, limit: 0 };
    assert_eq!(stream.trim(trim(250)), 0);
    assert_eq!(stream.trim(trim(251)), 50);
    assert_eq!((stream.len(), stream.is_empty(), stream.last_id()), (0, false, id(250, 0)));
    assert!(Stream::new().is_empty());
}

#[test]
fn a_node_ends_with_four_thousand_bytes() {
    let mut stream = Stream::new();
    let value = [b'x'; 1_000];
    (1..=9).for_each(|ms| stream.append(id(ms, 0), &[b"field", &value]));
    // The real server, told to trim with `~`, takes entries away in fours.
    assert_eq!(stream.nodes.iter().map(|node| node.live).collect::<Vec<_>>(), [4, 4, 1]);
    stream.append(id(10, 0), &[b"field", &[b'x'; 10_000]]);
    stream.append(id(11, 0), &[b"field", b"value"]);
    assert_eq!(stream.nodes.iter().map(|node| node.live).collect::<Vec<_>>(), [4, 4, 1, 1, 1]);
}

#[test]
fn ids_have_neighbours_up_to_the_ends() {
    assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
    assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
    assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
}

#[test]
fn ids_far_apart_share_a_node() {
    let mut stream = Stream::new();
    for id in [id(1, u64::MAX), id(2, 0), id(u64::MAX, 7), StreamId::MAX] {
        stream.append(id, &[b"", b""]);
    }
    assert_eq!(entries(&stream).into_keys().last(), Some(StreamId::MAX));
    assert!(stream.delete(id(u64::MAX, 7)) && !stream.delete(id(u64::MAX, 7)));
    assert_eq!(stream.nodes.len(), 1);
}
