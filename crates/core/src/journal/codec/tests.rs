//! Every mutation comes back as it was, and no bytes are more than a mutation or an error.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::journal::Mutations;

fn bytes() -> BoxedStrategy<Bytes> {
    prop_oneof![
        6 => vec(any::<u8>(), 0..12),
        2 => (0..40_i64).prop_map(|number| number.to_string().into_bytes()),
        1 => vec(any::<u8>(), 60..300),
    ]
    .prop_map(Bytes::from)
    .boxed()
}

/// Numbers of every length, those at the borders of lengths among them.
fn number() -> BoxedStrategy<u64> {
    prop_oneof![
        0..300_u64,
        (0..64_u32, 0..3_u64).prop_map(|(bits, more)| (1_u64 << bits).saturating_sub(1) + more),
        Just(u64::MAX),
        any::<u64>(),
    ]
    .boxed()
}

fn small() -> impl Strategy<Value = u32> {
    number().prop_map(|number| number as u32)
}

fn index() -> impl Strategy<Value = usize> {
    number().prop_map(|number| number as usize)
}

fn deadline() -> BoxedStrategy<Option<Deadline>> {
    prop::option::of(number().prop_map(|millis| Deadline::at(LockTime::from_millis(millis)))).boxed()
}

fn score() -> BoxedStrategy<f64> {
    let special = [0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX];
    prop_oneof![prop::sample::select(special.to_vec()), (-9..9_i8).prop_map(f64::from)].boxed()
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Head, End::Tail])
}

fn id() -> BoxedStrategy<StreamId> {
    (1..u64::MAX, number()).prop_map(|(ms, seq)| StreamId { ms, seq }).boxed()
}

/// Fields and values in turn.
fn pairs(count: usize) -> impl Strategy<Value = Vec<Bytes>> {
    vec((bytes(), bytes()), 0..count).prop_map(|pairs| pairs.into_iter().flat_map(|(a, b)| [a, b]).collect())
}

fn session() -> BoxedStrategy<Option<(u64, u64)>> {
    prop::option::of((number(), number())).boxed()
}

fn kind() -> BoxedStrategy<LockKind> {
    prop_oneof![
        Just(LockKind::Exclusive),
        Just(LockKind::Reentrant),
        Just(LockKind::Shared),
        small().prop_map(LockKind::Permits),
    ]
    .boxed()
}

fn holder() -> BoxedStrategy<Holder> {
    let numbers = (number(), number(), small(), number(), small());
    (numbers, deadline(), prop::option::of(number()), session(), pairs(3))
        .prop_map(|((token, client, permits, since, renewals), deadline, lease_ms, session, meta)| Holder {
            token,
            client,
            permits,
            since: LockTime::from_millis(since),
            deadline,
            lease_ms,
            renewals,
            session,
            meta: meta.into(),
        })
        .boxed()
}

fn edit() -> BoxedStrategy<Edit> {
    let hash = prop_oneof![
        bytes().prop_map(HashEdit::Remove),
        (bytes(), bytes()).prop_map(|(field, value)| HashEdit::Set(field, value)),
    ];
    let list = prop_oneof![
        (end(), index()).prop_map(|(end, count)| ListEdit::Drop { end, count }),
        (index(), bytes()).prop_map(|(index, element)| ListEdit::Insert { index, element }),
        (0..99_usize, index())
            .prop_map(|(start, more)| ListEdit::Keep { start, end: start.saturating_add(more) }),
        (end(), bytes()).prop_map(|(end, element)| ListEdit::Push { end, element }),
        (bytes(), end(), index()).prop_map(|(element, end, count)| ListEdit::Remove { element, end, count }),
        (index(), bytes()).prop_map(|(index, element)| ListEdit::Set { index, element }),
    ];
    let lock = prop_oneof![
        (kind(), bytes(), holder()).prop_map(|(kind, owner, holder)| LockEdit::Put(kind, owner, holder)),
        bytes().prop_map(LockEdit::Remove),
    ];
    let set = prop_oneof![bytes().prop_map(SetEdit::Insert), bytes().prop_map(SetEdit::Remove)];
    let sorted_set = prop_oneof![
        (bytes(), score()).prop_map(|(member, score)| SortedSetEdit::Insert { member, score }),
        bytes().prop_map(SortedSetEdit::Remove),
        (0..99_usize, 0..99_usize)
            .prop_map(|(from, more)| SortedSetEdit::RemoveRange { from, to: from + more }),
    ];
    let stream = prop_oneof![
        (id(), pairs(4)).prop_map(|(id, words)| StreamEdit::Append { id, words }),
        number().prop_map(|len_max| StreamEdit::Trim { len_max }),
    ];
    prop_oneof![
        hash.prop_map(Edit::Hash),
        list.prop_map(Edit::List),
        lock.prop_map(Edit::Lock),
        set.prop_map(Edit::Set),
        sorted_set.prop_map(Edit::SortedSet),
        stream.prop_map(Edit::Stream),
    ]
    .boxed()
}

/// Few elements, and enough to leave every compact kind of storage.
fn elements() -> impl Strategy<Value = Vec<Bytes>> {
    let many = (1..700_u32).prop_map(|count| (0..count).map(|n| Bytes::from(n.to_string())).collect());
    prop_oneof![4 => vec(bytes(), 1..20), 1 => many]
}

/// Objects that had more elements than they have: their kind of storage may be that of a larger one.
fn object() -> BoxedStrategy<Object> {
    let seed = Seed::of(7);
    let hash = (elements(), any::<Index>()).prop_map(move |(fields, kept)| {
        let mut hash = Hash::new(seed);
        for field in &fields {
            hash.set(field, b"value");
        }
        let kept = &fields[kept.index(fields.len())];
        for field in fields.iter().skip(3).filter(|field| *field != kept) {
            hash.remove(field);
        }
        Object::from(hash)
    });
    let list = elements().prop_map(|elements| {
        let mut list = List::new();
        elements.iter().for_each(|element| list.push(End::Tail, element));
        Object::from(list)
    });
    let lock = (kind(), vec((bytes(), holder()), 1..9)).prop_map(move |(kind, holders)| {
        let mut lock = Lock::new(seed);
        holders.iter().for_each(|(owner, holder)| lock.put(kind, owner, holder.clone()));
        if lock.len() > 1 {
            lock.remove(&holders[0].0);
        }
        Object::from(lock)
    });
    let set = (elements(), any::<bool>()).prop_map(move |(members, shrinks)| {
        let mut set = Set::new(seed);
        for member in &members {
            set.insert(member);
        }
        for member in members.iter().skip(1).filter(|member| shrinks && **member != members[0]) {
            set.remove(member);
        }
        Object::from(set)
    });
    let sorted_set =
        (elements(), vec(score(), 700), any::<bool>()).prop_map(move |(members, scores, shrinks)| {
            let mut set = SortedSet::new(seed);
            for (member, score) in members.iter().zip(scores) {
                set.insert(member, score);
            }
            let len = set.len();
            set.remove_range(if shrinks { 1..len } else { 0..0 });
            Object::from(set)
        });
    let stream = (vec((1..9_u64, number(), pairs(3)), 1..9), any::<bool>()).prop_map(|(entries, shrinks)| {
        let mut stream = Stream::new();
        let mut ms = 0;
        for (more, seq, words) in &entries {
            ms += more;
            let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
            stream.append(StreamId { ms, seq: *seq }, &words);
        }
        if shrinks {
            stream.trim(1);
            stream.raise_last_id(StreamId::MAX);
        }
        Object::from(stream)
    });
    prop_oneof![hash, list, lock, set, sorted_set, stream].boxed()
}

/// A place in the queues, or none.
fn rank() -> BoxedStrategy<Option<Place>> {
    let place = any::<(i64, u64)>().prop_map(|(rank, number)| Place { rank, number });
    prop::option::of(place).boxed()
}

fn mutation() -> BoxedStrategy<Mutation> {
    let place = || (any::<u16>(), bytes());
    let grant = (place(), [number(), number(), number()], prop::option::of(small()), session(), pairs(3));
    prop_oneof![
        1 => any::<u16>().prop_map(|database| Mutation::Clear { database }),
        9 => (place(), edit()).prop_map(|((database, key), edit)| Mutation::Edit { database, key, edit }),
        3 => grant.prop_map(|((database, key), [token, holder, since], lease_ms, session, meta)| {
            let (since, is_native) = (LockTime::from_millis(since), token % 2 == 0);
            let renewals = (token % 3) as u8;
            let grant = Grant { token, holder, since, lease_ms, renewals, is_native };
            let details = GrantDetails { session, meta: meta.into() };
            Mutation::Grant { database, key, grant, details }
        }),
        1 => (place(), bytes(), rank()).prop_map(|((database, key), owner, place)| {
            Mutation::Place { database, key, owner, place }
        }),
        6 => (place(), object(), deadline()).prop_map(|((database, key), object, deadline)| {
            Mutation::PutObject { database, key, object, deadline }
        }),
        2 => (place(), bytes(), deadline()).prop_map(|((database, key), value, deadline)| {
            Mutation::Put { database, key, value, deadline }
        }),
        1 => (place(), any::<bool>())
            .prop_map(|((database, key), expired)| Mutation::Remove { database, key, expired }),
        1 => (place(), deadline())
            .prop_map(|((database, key), deadline)| Mutation::SetDeadline { database, key, deadline }),
        1 => any::<[u16; 2]>().prop_map(|[a, b]| Mutation::Swap { a, b }),
    ]
    .boxed()
}

fn encoded(mutation: &Mutation) -> Vec<u8> {
    let mut out = Vec::new();
    encode(mutation, &mut out);
    out
}

fn decoded(bytes: &[u8]) -> Result<Mutation, DecodeError> {
    decode(&mut Bytes::copy_from_slice(bytes), Seed::of(11))
}

/// The kind of storage that OBJECT ENCODING tells; equality of sets and sorted sets does not compare all of it.
fn encoding(mutation: &Mutation) -> Option<&'static str> {
    if let Mutation::PutObject { object, .. } = mutation { Some(object.shape().encoding()) } else { None }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_mutation_comes_back_and_what_follows_it_stays(mutations in vec(mutation(), 1..6)) {
        let together: Mutations = mutations.iter().collect();
        prop_assert_eq!(&together.to_vec(), &mutations);
        let all: Vec<u8> = mutations.iter().flat_map(encoded).collect();
        let mut from = Bytes::from(all);
        for mutation in &mutations {
            let back = decode(&mut from, Seed::of(11));
            prop_assert_eq!(back.as_ref(), Ok(mutation));
            prop_assert_eq!(back.as_ref().ok().and_then(encoding), encoding(mutation));
            prop_assert_eq!(back.map(|back| encoded(&back)), Ok(encoded(mutation)));
        }
        prop_assert!(from.is_empty());
    }

    #[test]
    fn every_truncation_is_damage(mutation in mutation(), more in any::<Index>()) {
        let bytes = encoded(&mutation);
        // Of a large object some of its lengths, of all others every length.
        let step = bytes.len() / 400 + 1;
        for len in (0..bytes.len()).step_by(step).chain([more.index(bytes.len()), bytes.len() - 1]) {
            prop_assert_eq!(decoded(&bytes[..len]), Err(Damaged), "{} of {}", len, bytes.len());
        }
    }

    #[test]
    fn a_changed_byte_is_damage_or_another(mutation in mutation(), to in any::<u8>(), at in any::<Index>()) {
        let bytes = encoded(&mutation);
        let step = bytes.len() / 100 + 1;
        for at in (0..bytes.len()).step_by(step).chain([at.index(bytes.len())]) {
            for value in [to, 0, 1, 0x7f, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
                let mut changed = bytes.clone();
                changed[at] = value;
                if let Ok(mutation) = decoded(&changed) {
                    prop_assert_eq!(decoded(&encoded(&mutation)), Ok(mutation));
                }
            }
        }
    }

    #[test]
    fn random_bytes_are_damage_or_a_mutation(head in [0..12_u8, 0..3], noise in vec(0..24_u8, 0..80)) {
        let bytes = [&head[..], &noise[..]].concat();
        if let Ok(mutation) = decoded(&bytes) {
            prop_assert_eq!(decoded(&encoded(&mutation)), Ok(mutation));
        }
    }
}

/// A mutation that puts the object of these bytes under an empty key, without a deadline.
fn put_of(object: &[u8]) -> Result<Mutation, DecodeError> {
    decoded(&[&[tag::PUT_OBJECT, 0, 0, 0], object].concat())
}

#[test]
fn an_object_that_breaks_a_rule_of_its_type_is_damage() {
    let nan = f64::NAN.to_bits().to_le_bytes();
    let [one, two] = [1.0_f64, 2.0].map(|score| score.to_bits().to_le_bytes());
    let holder = [1, b'a', 1, 1, 1, 1, 0, 0, 0, 0, 0];
    for (object, why) in [
        (vec![tag::HASH, 0, 0], "no field"),
        (vec![tag::HASH, 0, 2, 1, b'a', 0, 0, 1, b'a', 0, 0], "a field twice"),
        (vec![tag::LIST, 0], "no element"),
        (vec![tag::LOCK, tag::SHARED, 0], "no holder"),
        ([&[tag::LOCK, tag::SHARED, 2], &holder[..], &holder[..]].concat(), "a holder twice"),
        (vec![tag::SET, 0, 0], "no member"),
        (vec![tag::SET, 0, 2, 1, b'7', 1, b'7'], "a member twice"),
        (vec![tag::SORTED_SET, 0, 0], "no member"),
        ([&[tag::SORTED_SET, 0, 1, 1, b'a'], &nan[..]].concat(), "a score that is no number"),
        ([&[tag::SORTED_SET, 0, 2, 1, b'a'], &one[..], &[1, b'a'], &two[..]].concat(), "a member twice"),
        (vec![tag::STREAM, 0, 0, 0], "no entry ever"),
        (vec![tag::STREAM, 9, 0, 2, 3, 0, 0, 3, 0, 0], "an id twice"),
        (vec![tag::STREAM, 9, 0, 2, 3, 0, 0, 2, 0, 0], "ids that fall"),
        (vec![tag::STREAM, 2, 0, 1, 3, 0, 0], "an id behind the last"),
        (vec![tag::STREAM, 3, 0, 1, 3, 0, 1, 0], "a field without a value"),
        (vec![7], "an unknown type"),
    ] {
        assert_eq!(put_of(&object), Err(Damaged), "{why}");
    }
    assert!(put_of(&[&[tag::LOCK, tag::SHARED, 1], &holder[..]].concat()).is_ok());
}

#[test]
fn what_only_earlier_programs_have_written_is_refused_by_name() {
    let edit = |edit: &[u8]| decoded(&[&[tag::EDIT, 0, 1, b'k'], edit].concat());
    let old_trim = [tag::STREAM_TRIM, tag::KEEP_LAST, 7, 9];
    assert!(matches!(
        edit(&old_trim),
        Ok(Mutation::Edit { edit: Edit::Stream(StreamEdit::Trim { len_max: 7 }), .. })
    ));
    for removed in [&[tag::STREAM_DELETE, 1, 1][..], &[tag::STREAM_TRIM, tag::KEEP_FROM, 1, 1, 0]] {
        assert_eq!(edit(removed), Err(STREAM_REMOVAL));
    }
    assert_eq!(edit(&[tag::HASH_DEADLINE, 1, b'f', 1, 9]), Err(FIELD_DEADLINE));
    assert_eq!(put_of(&[tag::HASH, 0, 1, 1, b'f', 1, b'v', 1, 9]), Err(FIELD_DEADLINE));
}

#[test]
fn a_place_of_an_earlier_program_is_behind_all_until_a_replay_knows_when_it_was_taken() {
    let place = |bytes: &[u8]| match decoded(bytes) {
        Ok(Mutation::Place { owner, place, .. }) => (owner, place),
        other => panic!("{other:?}"),
    };
    let old = [tag::PLACE, 0, 1, b'k', 2, b'm', b'e', 1, 0x85, 1];
    let rank = i64::MAX;
    assert_eq!(place(&old), (Bytes::from_static(b"me"), Some(Place { rank, number: 133 })));
    assert_eq!(place(&[tag::PLACE, 0, 1, b'k', 2, b'm', b'e', 0]), (Bytes::from_static(b"me"), None));
}

#[test]
fn a_count_is_not_believed_before_the_elements_are_there() {
    for head in [&[tag::LIST][..], &[tag::SET, 0], &[tag::HASH, 0], &[tag::LOCK, tag::SHARED]] {
        let mut object = head.to_vec();
        put_number(&mut object, u64::MAX);
        object.extend([0; 64]);
        assert_eq!(put_of(&object), Err(Damaged), "{head:?}");
    }
}

#[test]
fn a_number_of_more_than_64_bits_is_damage() {
    for number in [0, 0x7f, 0x80, u64::MAX] {
        let mut out = Vec::new();
        put_number(&mut out, number);
        assert!(out.len() <= VARINT_BYTES_MAX);
        assert_eq!(take_number(&mut Bytes::from(out)), Ok(number));
    }
    let nine = [0xff; 9];
    assert_eq!(take_number(&mut Bytes::from([&nine[..], &[1]].concat())), Ok(u64::MAX));
    assert_eq!(take_number(&mut Bytes::from([&nine[..], &[2]].concat())), Err(Damaged));
    assert_eq!(take_number(&mut Bytes::from([&nine[..], &[0x81, 0]].concat())), Err(Damaged));
}

#[test]
fn a_lock_takes_few_bytes_and_its_key_and_value_are_not_copied() {
    let lease_end = Some(Deadline::at(LockTime::from_millis(1_764_000_000_000)));
    let value = Bytes::from_static(b"b983c153-7421-469a-addb-44fb92259a1b");
    let put = Mutation::Put { database: 0, key: Bytes::from_static(b"lock:1"), value, deadline: lease_end };
    let bytes = Bytes::from(encoded(&put));
    assert_eq!(bytes.len(), 1 + 1 + 1 + 6 + 1 + 6 + 1 + 36);
    let Ok(Mutation::Put { key, value, .. }) = decode(&mut bytes.clone(), Seed::of(1)) else {
        panic!("the bytes are those of a string");
    };
    let inside = bytes.as_ptr_range();
    assert!(inside.contains(&key.as_ptr()) && inside.contains(&value.as_ptr()));
}
