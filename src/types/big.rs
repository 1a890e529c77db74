//! Natural numbers of any size, for exact conversions between decimal and binary.
//!
//! Rule    limbs are little-endian and the last one is never zero, so that the length follows from the number.

use std::cmp::Ordering;

/// A natural number.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Big(Vec<u64>);

impl Big {
    /// That number.
    pub(super) fn new(value: u64) -> Self {
        let mut big = Self(vec![value]);
        big.trim();
        big
    }

    /// `self = self * factor + addend`.
    pub(super) fn multiply_add(&mut self, factor: u64, addend: u64) {
        let mut carry = u128::from(addend);
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        self.0.push(carry as u64);
        self.trim();
    }

    /// `self = self / divisor`; returns the remainder. The divisor is not zero.
    pub(super) fn divide(&mut self, divisor: u64) -> u64 {
        let mut rest = 0_u128;
        for limb in self.0.iter_mut().rev() {
            let part = rest << 64 | u128::from(*limb);
            *limb = (part / u128::from(divisor)) as u64;
            rest = part % u128::from(divisor);
        }
        self.trim();
        rest as u64
    }

    /// `self = self * 2^bits`.
    pub(super) fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        let (limbs, bits) = (bits / 64, (bits % 64) as u32);
        if bits > 0 {
            self.multiply_add(1 << bits, 0);
        }
        self.0.splice(0..0, std::iter::repeat_n(0, limbs));
    }

    /// `self = self + other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()) + 1, 0);
        let mut carry = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (sum, over) = limb.overflowing_add(other.limb(at));
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, over || over_again);
        }
        self.trim();
    }

    /// `self = self - other`, which is not greater.
    pub(super) fn subtract(&mut self, other: &Self) {
        debug_assert!(self.compare(other).is_ge(), "a natural number stays one");
        let mut borrow = false;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let (rest, under) = limb.overflowing_sub(other.limb(at));
            let (rest, under_again) = rest.overflowing_sub(u64::from(borrow));
            (*limb, borrow) = (rest, under || under_again);
        }
        self.trim();
    }

    /// Which one is greater.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Whether it is zero.
    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bits it has, from the highest that is set.
    pub(super) fn bits(&self) -> usize {
        self.0.last().map_or(0, |last| self.0.len() * 64 - last.leading_zeros() as usize)
    }

    /// The 64 bits from bit `from` on.
    pub(super) fn window(&self, from: usize) -> u64 {
        let (at, bit) = (from / 64, (from % 64) as u32);
        let pair = u128::from(self.limb(at + 1)) << 64 | u128::from(self.limb(at));
        (pair >> bit) as u64
    }

    /// Whether a bit below bit `end` is set.
    pub(super) fn has_bits_below(&self, end: usize) -> bool {
        let (at, bit) = (end / 64, (end % 64) as u32);
        self.0.iter().take(at).any(|limb| *limb != 0) || self.limb(at) & ((1 << bit) - 1) != 0
    }

    /// Its decimal digits; none for zero.
    pub(super) fn digits(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            groups.push(self.divide(GROUP));
        }
        let mut text = groups.pop().map_or_else(String::new, |first| first.to_string());
        for group in groups.into_iter().rev() {
            text.push_str(&format!("{group:019}"));
        }
        text
    }

    fn limb(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

/// The largest power of ten in 64 bits, and how many digits that is.
pub(super) const GROUP: u64 = 10_u64.pow(GROUP_DIGITS as u32);
/// The exponent of [`GROUP`].
pub(super) const GROUP_DIGITS: usize = 19;
