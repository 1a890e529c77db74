//! The shapes of values, and how patterns match them.
//!
//! Owns    [`Object`]: a value that is not a string. The shapes themselves do not know each other.
//! Knows   bytes and, for what ends by itself, `clock`; nothing of keys, clients or of what time it is.

pub mod element;
pub mod glob;
pub mod hash;
pub mod list;
mod seeds;
pub mod set;
pub mod sorted_set;
pub mod stream;

use crate::clock::{Deadline, LockTime};

pub use element::Element;
pub use hash::Hash;
pub use list::List;
pub use seeds::Seed;
pub use set::Set;
pub use sorted_set::SortedSet;
pub use stream::Stream;

/// A value that is not a string.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// Fields with values.
    Hash(Hash),
    /// Elements in a row.
    List(List),
    /// Members without order.
    Set(Set),
    /// Members ordered by their scores.
    SortedSet(SortedSet),
    /// Entries ordered by their ids.
    Stream(Stream),
}

impl Object {
    /// The earliest deadline of an element; `None` when none ends by itself.
    #[inline]
    pub fn earliest_deadline(&self) -> Option<Deadline> {
        if let Self::Hash(hash) = self { hash.earliest_deadline() } else { None }
    }

    /// Whether every element has ended.
    pub fn has_ended(&self, now: LockTime) -> bool {
        if let Self::Hash(hash) = self { hash.has_ended(now) } else { false }
    }
}

/// What every shape can say of itself.
pub trait Shape {
    /// What TYPE says.
    fn type_name(&self) -> &'static str;

    /// What OBJECT ENCODING says.
    fn encoding(&self) -> &'static str;

    /// How many elements there are.
    fn len(&self) -> usize;

    /// Bytes on the heap, about; in constant time.
    fn heap_bytes(&self) -> usize;

    /// Whether a key with this value is to be removed: it has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A shape that an [`Object`] may have.
pub trait Typed: Shape + Into<Object> {
    /// One without elements.
    fn blank(seed: Seed) -> Self;

    /// The object, if it has this shape.
    fn of(object: &Object) -> Option<&Self>;

    /// The same, to be changed.
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
            /// What every shape can say of itself.
            pub fn shape(&self) -> &dyn Shape {
                match self {
                    $(Self::$shape(shape) => shape,)*
                }
            }
        }
    };
}

typed!(Hash => Hash::new, List => |_| List::new(), Set => Set::new, SortedSet => SortedSet::new, Stream => |_| Stream::new());
