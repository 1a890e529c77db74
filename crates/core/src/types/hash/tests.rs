//! Hashes against what they are by definition, and each rule of theirs on its own.

use proptest::prelude::*;

use super::*;

/// What a hash is by definition: pairs in order.
#[derive(Debug, Default)]
struct Model {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Model {
    fn place(&self, field: &[u8]) -> Option<usize> {
        self.pairs.iter().position(|(name, _)| name == field)
    }

    fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.place(field) {
            Some(place) => self.pairs[place].1 = value.to_vec(),
            None => {
                self.pairs.push((field.to_vec(), value.to_vec()));
                return true;
            }
        }
        false
    }

    fn remove(&mut self, field: &[u8], keeps_order: bool) -> bool {
        let Some(place) = self.place(field) else { return false };
        match keeps_order {
            true => self.pairs.remove(place),
            false => self.pairs.swap_remove(place),
        };
        true
    }
}

fn filled(fields: usize) -> Hash {
    let mut hash = Hash::new(Seed::of(7));
    for n in 0..fields {
        assert!(hash.set(format!("f{n}").as_bytes(), n.to_string().as_bytes()));
    }
    hash
}

fn agree(hash: &Hash, model: &Model) {
    assert_eq!(hash.len(), model.pairs.len());
    assert_eq!(hash.is_empty(), model.pairs.is_empty());
    let pairs: Vec<_> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
    assert_eq!(pairs, model.pairs);
    for (place, (field, value)) in model.pairs.iter().enumerate() {
        assert_eq!(hash.get(field), Some(value.as_slice()));
        assert_eq!(hash.at(place), Some((field.as_slice(), value.as_slice())));
    }
    assert_eq!(hash.at(hash.len()), None);
}

proptest! {
    /// Few names, so that fields are set again and removed; lengths around both limits.
    #[test]
    fn a_hash_is_its_pairs_in_order(
        steps in prop::collection::vec((any::<bool>(), 0..40_u8, 0..70_usize), 0..200),
        long_names in any::<bool>(),
    ) {
        let (mut hash, mut model) = (Hash::new(Seed::of(7)), Model::default());
        for (is_set, name, value_len) in steps {
            let length = if long_names { usize::from(name) * 2 } else { usize::from(name) % 3 + 1 };
            let field = vec![name; length];
            if is_set {
                let value = vec![name ^ 1; value_len];
                prop_assert_eq!(hash.set(&field, &value), model.set(&field, &value));
            } else {
                let keeps_order = hash.encoding() == "listpack";
                prop_assert_eq!(hash.remove(&field), model.remove(&field, keeps_order));
            }
            agree(&hash, &model);
            prop_assert_eq!(&hash.clone(), &hash);
        }
    }

    #[test]
    fn a_scan_misses_no_field_that_stays(
        fields in 1..700_usize,
        count in 1..50_u64,
        churn in prop::collection::vec((any::<bool>(), 0..1_400_usize), 0..300),
    ) {
        let mut hash = filled(fields);
        hash.become_table();
        let mut stays: std::collections::BTreeSet<Vec<u8>> =
            (0..fields).map(|n| format!("f{n}").into_bytes()).collect();
        let (mut cursor, mut seen, mut churn) = (0, Vec::new(), churn.into_iter());
        loop {
            cursor = hash.scan(cursor, count, |field, _| seen.push(field.to_vec()));
            if cursor == 0 {
                break;
            }
            for (is_set, n) in churn.by_ref().take(5) {
                let field = format!("f{n}").into_bytes();
                if is_set {
                    hash.set(&field, b"again");
                } else {
                    hash.remove(&field);
                    stays.remove(&field);
                }
            }
        }
        for field in stays {
            prop_assert!(seen.contains(&field), "{:?} was missed", field.escape_ascii().to_string());
        }
    }
}

mod encoding {
    use super::*;

    #[test]
    fn a_hash_is_a_listpack_up_to_512_fields_and_never_again() {
        let mut hash = filled(512);
        assert_eq!(hash.encoding(), "listpack");
        hash.set(b"f5", b"again");
        assert_eq!(hash.encoding(), "listpack", "no field more");
        hash.set(b"one more", b"");
        assert_eq!(hash.encoding(), "hashtable");
        while let Some((field, _)) = hash.at(1) {
            let field = field.to_vec();
            hash.remove(&field);
        }
        assert_eq!((hash.len(), hash.encoding()), (1, "hashtable"));
    }

    #[test]
    fn long_fields_and_long_values_make_a_table() {
        for (field, value, encoding) in [(64, 64, "listpack"), (65, 0, "hashtable"), (0, 65, "hashtable")] {
            let mut hash = Hash::new(Seed::of(7));
            hash.set(&vec![b'f'; field], &vec![b'v'; value]);
            assert_eq!(hash.encoding(), encoding, "{field} {value}");
        }
    }
}

mod scan {
    use super::*;

    #[test]
    fn a_scan_of_a_listpack_is_one_step_whatever_the_cursor() {
        let hash = filled(512);
        let mut seen = 0;
        assert_eq!(hash.scan(77, 1, |_, _| seen += 1), 0);
        assert_eq!(seen, 512);
    }

    #[test]
    fn a_scan_of_a_table_has_several_steps() {
        let hash = filled(513);
        let (mut cursor, mut seen, mut rounds) = (0, 0, 0);
        loop {
            cursor = hash.scan(cursor, 100, |_, _| seen += 1);
            rounds += 1;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((seen, rounds), (513, 6));
    }

    #[test]
    fn no_cursor_and_no_count_is_too_large() {
        let hash = filled(513);
        let mut seen = 0;
        assert_eq!(hash.scan(u64::MAX, u64::MAX, |_, _| seen += 1), 0);
        assert_eq!(seen, 513);
        assert_eq!(hash.scan(1, 0, |field, _| assert_eq!(field, b"f0")), 0);
    }
}

mod size {
    use super::*;

    #[test]
    fn a_small_hash_is_one_small_allocation() {
        assert!(size_of::<Hash>() <= 40, "{}", size_of::<Hash>());
        let mut hash = Hash::new(Seed::of(7));
        assert_eq!(hash.heap_bytes(), 0);
        hash.set(b"b983c153-7421-469a-addb-44fb92259a1b:76", b"1");
        assert_eq!(hash.heap_bytes(), 64, "two bytes beside field and value, up to the next step");
    }

    #[test]
    fn a_table_that_has_emptied_frees_its_memory() {
        let mut hash = filled(10_000);
        let full = hash.heap_bytes();
        assert!((300_000..2_000_000).contains(&full), "{full}");
        for n in 0..9_990 {
            hash.remove(format!("f{n}").as_bytes());
        }
        assert!(hash.heap_bytes() < full / 50, "{}", hash.heap_bytes());
    }
}
