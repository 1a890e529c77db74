//! The types of values, and glob patterns.
//!
//! Owns    [`Object`]: a value that is not a string. The types do not depend on each other.
//! Knows   bytes and, for the leases of holders, `clock`; nothing of keys, clients or the current time.

pub mod element;
pub mod glob;
pub mod hash;
pub mod heap;
pub mod list;
pub mod lock;
mod seeds;
pub mod set;
pub mod slot;
pub(crate) mod sorted_set;
pub mod stream;

use redlatch_proto::clock::{Deadline, LockTime};

pub use element::Element;
pub use hash::Hash;
pub use list::List;
pub use lock::Lock;
pub use seeds::Seed;
pub use set::Set;
pub use sorted_set::SortedSet;
pub use stream::Stream;

/// A value that is not a string.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Hash(Hash),
    List(List),
    Lock(Lock),
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    Stream(Stream),
}

impl Object {
    /// The earliest deadline of an element, if any element has one.
    #[inline]
    pub(crate) fn earliest_deadline(&self) -> Option<Deadline> {
        match self {
            Self::Lock(lock) => lock.earliest_deadline(),
            _ => None,
        }
    }

    /// True if every element has ended.
    pub fn has_ended(&self, now: LockTime) -> bool {
        match self {
            Self::Lock(lock) => lock.has_ended(now),
            _ => false,
        }
    }
}

/// What every type reports of a value.
pub trait Shape {
    /// The reply of TYPE.
    fn type_name(&self) -> &'static str;

    /// The reply of OBJECT ENCODING.
    fn encoding(&self) -> &'static str;

    fn len(&self) -> usize;

    /// Approximate bytes on the heap, in constant time.
    fn heap_bytes(&self) -> usize;

    /// True if there are no elements: a key with this value is removed.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A type of [`Object`].
pub trait Typed: Shape + Into<Object> {
    /// An empty value.
    fn blank(seed: Seed) -> Self;

    /// The value, if the object has this type.
    fn of(object: &Object) -> Option<&Self>;

    /// The value for changes, if the object has this type.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
}

macro_rules! typed {
    ($($shape:ident => $blank:expr),*) => {
        $(
            impl Typed for $shape {
                fn blank(seed: Seed) -> Self {
                    $blank(seed)
                }

                #[inline]
                fn of(object: &Object) -> Option<&Self> {
                    if let Object::$shape(shape) = object { Some(shape) } else { None }
                }

                #[inline]
                fn of_mut(object: &mut Object) -> Option<&mut Self> {
                    if let Object::$shape(shape) = object { Some(shape) } else { None }
                }
            }

            impl From<$shape> for Object {
                fn from(shape: $shape) -> Self {
                    Self::$shape(shape)
                }
            }
        )*

        impl Object {
            /// What every type reports of a value.
            pub fn shape(&self) -> &dyn Shape {
                match self {
                    $(Self::$shape(shape) => shape,)*
                }
            }
        }
    };
}

typed!(
    Hash => Hash::new,
    List => |_| List::new(),
    Lock => Lock::new,
    Set => Set::new,
    SortedSet => SortedSet::new,
    Stream => |_| Stream::new()
);
