//! Libraries of functions, kept from one server to the next.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_core::commands::Shared;
use redlatch_core::keyspace::{Keyspace, Layout};
use redlatch_core::state::settings::Settings;

use crate::support::clock::StillClock;
use crate::support::interpreter::INTERPRETER;

fn shared() -> Shared {
    let layout = Layout { shards: 1, databases: 1, seed: 1, journal: None };
    let clock: Arc<StillClock> = StillClock::new(5, 0);
    Shared::new(Keyspace::new(layout, || {}), Settings::default(), clock, 1).with_interpreter(INTERPRETER)
}

fn dump(text: &str) -> Bytes {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat().into()
}

#[test]
fn libraries_are_restored_from_their_dump() {
    let first = shared();
    first.restore_functions(&dump("#!lua name=a\nredis.register_function('one', function() return 1 end)"));
    first.restore_functions(&dump("#!lua name=b\nredis.register_function('two', function() return 2 end)"));
    first.restore_functions(&dump("#!lua name=c\nthis is not Lua"));
    assert_eq!(first.scripts.libraries.counts(), (2, 2));
    let second = shared();
    second.restore_functions(&first.scripts.libraries.dump());
    assert_eq!(
        (second.scripts.libraries.counts(), second.scripts.libraries.dump()),
        ((2, 2), first.scripts.libraries.dump())
    );
}
