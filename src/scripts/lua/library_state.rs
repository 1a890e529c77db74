//! What a function of a library keeps from call to call: variables of the library that it uses, and the tables in these.
//!
//! Owns    putting that back after a call that was only tried out.
//! Bounds  few values: a function that keeps more, or what cannot be put back, is not tried out.

use std::ffi::c_int;

use smallvec::{SmallVec, smallvec};

use super::budget::Unlimited;
use super::stack::{Kept, Kind, Stack};

/// What a function keeps, as it was. The values are on the stack for as long as this is needed.
#[derive(Debug, Default)]
pub(super) struct LibraryState {
    upvalues: SmallVec<[Upvalue; 4]>,
    tables: SmallVec<[c_int; 4]>,
    fields: Vec<Field>,
}

/// A variable that a function uses and that is not its own.
#[derive(Debug)]
struct Upvalue {
    function: c_int,
    number: c_int,
    value: c_int,
}

/// A field of a table. Its key is below its value.
#[derive(Debug)]
struct Field {
    table: c_int,
    value: c_int,
}

/// The most values that are kept.
const VALUES_MAX: c_int = 64;
/// Room for them, for keys, and to look at one.
const ROOM: c_int = 2 * VALUES_MAX + 16;

impl LibraryState {
    /// What the function at `function` keeps, which is on top; what is `known` keeps nothing. `None` where it cannot be put
    /// back.
    pub(super) fn of(
        stack: &mut Stack<'_>,
        function: c_int,
        known: Kept,
        limit: &Unlimited<'_>,
    ) -> Option<Self> {
        let mut state = Self::default();
        // Most keep nothing.
        if !stack.push_upvalue(function, 1) {
            return Some(state);
        }
        stack.pop(1);
        let (mut seen, mut unseen): (SmallVec<[usize; 8]>, SmallVec<[c_int; 8]>) =
            (smallvec![], smallvec![function]);
        if !stack.reserve(ROOM, limit) {
            return None;
        }
        while let Some(place) = unseen.pop() {
            let identity = stack.identity(place);
            if seen.contains(&identity) || is_known(stack, place, known) {
                continue;
            }
            seen.push(identity);
            let floor = stack.len();
            if stack.is_function(place) {
                state.look_into_function(stack, place)?
            } else {
                state.look_into_table(stack, place)?
            }
            for value in floor + 1..=stack.len() {
                match stack.kind(value) {
                    Kind::Table => unseen.push(value),
                    Kind::Other if stack.is_function(value) => unseen.push(value),
                    // A coroutine goes on where it was left.
                    Kind::Other if !stack.is_null(value) => return None,
                    _ => {}
                }
            }
        }
        Some(state)
    }

    fn look_into_function(&mut self, stack: &mut Stack<'_>, function: c_int) -> Option<()> {
        let mut number = 1;
        while stack.push_upvalue(function, number) {
            self.upvalues.push(Upvalue { function, number, value: stack.len() });
            self.has_room()?;
            number += 1;
        }
        Some(())
    }

    fn look_into_table(&mut self, stack: &mut Stack<'_>, table: c_int) -> Option<()> {
        // What it does to its table is more than anybody can see.
        if stack.has_metatable(table) {
            return None;
        }
        self.tables.push(table);
        stack.push_nil();
        while stack.next(table) {
            self.fields.push(Field { table, value: stack.len() });
            self.has_room()?;
            stack.push_copy(-2);
        }
        Some(())
    }

    fn has_room(&self) -> Option<()> {
        (self.upvalues.len() + self.fields.len() <= VALUES_MAX as usize).then_some(())
    }

    /// Puts everything back.
    pub(super) fn put_back(&self, stack: &mut Stack<'_>, limit: &Unlimited<'_>) {
        for table in &self.tables {
            stack.empty(*table, limit);
        }
        for Field { table, value } in &self.fields {
            stack.push_copy(value - 1);
            stack.push_copy(*value);
            stack.set_field(*table, limit);
        }
        for Upvalue { function, number, value } in &self.upvalues {
            stack.push_copy(*value);
            stack.set_upvalue(*function, *number);
        }
    }
}

fn is_known(stack: &mut Stack<'_>, place: c_int, known: Kept) -> bool {
    stack.push_kept(known);
    stack.push_copy(place);
    stack.look_up(-2);
    let is_known = stack.is_true(-1);
    stack.pop(2);
    is_known
}
