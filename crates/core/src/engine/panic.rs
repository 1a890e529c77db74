//! What a panic leaves of a call.
//!
//! Rule    what the call has changed until then stays. So it is recorded, published and offered to waiting calls like the
//!         changes of any call, before its shards are unlocked. The panic goes on, and ends the connection.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::keyspace::View;
use crate::state::registries::Registries;

/// Runs `act`. If it panics, the view is finished; otherwise the caller finishes it.
#[inline]
pub(super) fn finish_at_panic<'k, T>(
    view: &mut View<'k>,
    registries: &Registries,
    act: impl FnOnce(&mut View<'k>) -> T,
) -> T {
    let unfinished = Unfinished { view, registries };
    let result = act(unfinished.view);
    std::mem::forget(unfinished);
    result
}

struct Unfinished<'v, 'k> {
    view: &'v mut View<'k>,
    registries: &'v Registries,
}

impl Drop for Unfinished<'_, '_> {
    #[cold]
    fn drop(&mut self) {
        // A second panic must not leave a destructor: that would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| self.view.finish(self.registries)));
    }
}
