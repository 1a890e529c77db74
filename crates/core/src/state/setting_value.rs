//! Handles of settings, each of which knows the type of its value.
//!
//! Owns    [`Handle`], and how a value of each type is read.
//! Rule    a handle is made only by the table of the settings, which checks that its type holds every value of its kind.

use std::marker::PhantomData;

use super::settings::{Kind, Setting};
use super::settings_table::ROWS;

/// A row of the settings table, and the type in which its value is read: `settings.get(settings::LOCK_DELAY)`.
pub struct Handle<T> {
    place: usize,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl<T> Handle<T> {
    /// Its name, as in redis.conf.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Its row.
    pub fn row(self) -> &'static Setting {
        &ROWS[self.place]
    }

    /// Its place in the table.
    #[inline]
    pub(super) const fn place(self) -> usize {
        self.place
    }
}

impl<T: Value> Handle<T> {
    /// The handle of the row at `place`.
    ///
    /// # Panics
    /// While it compiles, if `T` cannot hold every value of `kind`.
    pub(super) const fn new(place: usize, kind: Kind) -> Self {
        assert!(T::SHAPE.holds(kind), "the type of a handle holds every value of its row");
        Self { place, value: PhantomData }
    }
}

/// What a type can hold.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Flag,
    /// Integers from the first to the second, both included.
    Number(i64, i64),
    Text,
}

impl Shape {
    const fn holds(self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Flag, Kind::Flag) => true,
            (Self::Number(least, most), Kind::Integer(min, max)) => least <= min && max <= most,
            (Self::Number(least, most), Kind::Bytes(_, max)) => least <= 0 && max <= most as u64,
            (Self::Flag | Self::Number(..), _) => false,
            (Self::Text, kind) => !matches!(kind, Kind::Flag | Kind::Integer(..) | Kind::Bytes(..)),
        }
    }
}

/// A type in which values of settings are read.
pub trait Value: Sized {
    const SHAPE: Shape;

    /// The value of a row: of `number` if it is an integer, bytes or a flag (1: yes), of `text` otherwise.
    fn read(number: impl FnOnce() -> i64, text: impl FnOnce() -> String) -> Self;
}

impl Value for String {
    const SHAPE: Shape = Shape::Text;

    fn read(_: impl FnOnce() -> i64, text: impl FnOnce() -> String) -> Self {
        text()
    }
}

impl Value for bool {
    const SHAPE: Shape = Shape::Flag;

    #[inline]
    fn read(number: impl FnOnce() -> i64, _: impl FnOnce() -> String) -> Self {
        number() != 0
    }
}

macro_rules! numbers {
    ($($number:ty: $least:expr, $most:expr;)*) => {
        $(impl Value for $number {
            const SHAPE: Shape = Shape::Number($least, $most);

            #[inline]
            fn read(number: impl FnOnce() -> i64, _: impl FnOnce() -> String) -> Self {
                Self::try_from(number()).unwrap_or(Self::MAX)
            }
        })*
    };
}

// A size beyond the memory of a machine with 32 bits is the largest one.
numbers! {
    i64: i64::MIN, i64::MAX;
    u8: 0, u8::MAX as i64;
    u16: 0, u16::MAX as i64;
    u64: 0, i64::MAX;
    usize: 0, i64::MAX;
}

/// The number that a checked value stands for: an integer, bytes, or 1 for `yes`; 0 for texts.
pub(super) fn number(kind: Kind, value: &str) -> i64 {
    match kind {
        Kind::Flag => i64::from(value == "yes"),
        Kind::Bytes(..) | Kind::Integer(..) => value.parse().unwrap_or_default(),
        _ => 0,
    }
}
