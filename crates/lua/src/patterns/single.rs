//! Items of a pattern that stand for one byte: classes, sets, single bytes.
//!
//! Source  Lua 5.1 reference manual, 5.4.1; `lstrlib.c` of Lua 5.1.5 for letters that name no class, and for sets.

/// Bytes of a set that are looked through in one step.
const LONG_SET: usize = 4;

/// An item that stands for one byte.
#[derive(Clone, Copy, Debug)]
pub(super) enum Single<'p> {
    Any,
    Own(u8),
    Class(Class),
    Set(&'p [u8]),
}

impl<'p> Single<'p> {
    /// What is a whole item.
    #[inline]
    pub(super) fn of(item: &'p [u8]) -> Self {
        match *item {
            [b'.', ..] => Self::Any,
            [b'%', class, ..] => Class::of(class).map_or(Self::Own(class), Self::Class),
            [b'[', ..] => Self::Set(item),
            [own, ..] => Self::Own(own),
            [] => Self::Any,
        }
    }

    #[inline]
    pub(super) fn has(&self, byte: u8) -> bool {
        match *self {
            Self::Any => true,
            Self::Own(own) => own == byte,
            Self::Class(class) => class.has(byte),
            Self::Set(set) => in_set(byte, set),
        }
    }

    /// Steps beyond the one that every byte costs: a long set is looked through for each.
    #[inline]
    pub(super) fn steps(&self) -> usize {
        if let Self::Set(set) = self { set.len() / LONG_SET } else { 0 }
    }
}

/// `%a`, `%d`, ...; an upper-case letter means all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// Its bit in [`CLASSES`].
    bit: u16,
    is_negated: bool,
}

/// The letters of all classes, in the order of their bits.
const CLASS_LETTERS: &[u8; 10] = b"acdlpsuwxz";

/// Of which classes each byte is.
const CLASSES: [u16; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut class = 0;
        while class < CLASS_LETTERS.len() {
            classes[byte] |= (is_of(byte as u8, CLASS_LETTERS[class]) as u16) << class;
            class += 1;
        }
        byte += 1;
    }
    classes
};

/// The bit of the class that each letter means, in either case.
const CLASS_BITS: [u16; 256] = {
    let mut bits = [0; 256];
    let mut class = 0;
    while class < CLASS_LETTERS.len() {
        bits[CLASS_LETTERS[class] as usize] = 1 << class;
        bits[CLASS_LETTERS[class].to_ascii_uppercase() as usize] = 1 << class;
        class += 1;
    }
    bits
};

/// Whether a byte is of the class of that lower-case letter.
const fn is_of(byte: u8, class: u8) -> bool {
    match class {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => byte == 0,
    }
}

impl Class {
    /// The class of that letter, if it is one's.
    #[inline]
    fn of(letter: u8) -> Option<Self> {
        let bit = CLASS_BITS[usize::from(letter)];
        (bit != 0).then_some(Self { bit, is_negated: letter.is_ascii_uppercase() })
    }

    #[inline]
    fn has(self, byte: u8) -> bool {
        (CLASSES[usize::from(byte)] & self.bit != 0) != self.is_negated
    }
}

/// Whether a byte is in a set, given with its brackets.
pub(super) fn in_set(byte: u8, set: &[u8]) -> bool {
    let inner = &set[1..set.len() - 1];
    let (is_negated, inner) = match inner {
        [b'^', inner @ ..] => (true, inner),
        inner => (false, inner),
    };
    let mut rest = inner;
    while !rest.is_empty() {
        let (is_in, skip) = match rest {
            [b'%', class, ..] => (Class::of(*class).map_or(*class == byte, |class| class.has(byte)), 2),
            [low, b'-', high, ..] => ((*low..=*high).contains(&byte), 3),
            [own, ..] => (*own == byte, 1),
            [] => break,
        };
        if is_in {
            return !is_negated;
        }
        rest = &rest[skip..];
    }
    is_negated
}
