//! What the lists of rows have in common: short names for operands, calls and refusals.
//!
//! Owns    those names only.

pub(super) use super::super::native::{Arg, Do, Give, Role, Step, Test};
pub(super) use super::super::spellings::{A1, A2, K1, call};
pub(super) use super::super::table::Row;

pub(super) const K2: Arg = Arg::Of(Role::Key(2));
pub(super) const A3: Arg = Arg::Of(Role::Argument(3));
pub(super) const EACH: Arg = Arg::Of(Role::Each);
pub(super) const ONE: Arg = Arg::Of(Role::Literal("1"));
pub(super) const TOKEN: Role = Role::Argument(1);
pub(super) const PX: Arg = Arg::Word("PX");
pub(super) const PXAT: Arg = Arg::Word("PXAT");

pub(super) const fn get(place: u8) -> Do {
    call(place, "GET", &[K1])
}

pub(super) const fn integer(number: i64) -> Step {
    Step::Return(Give::Integer(number))
}

/// A lock that is not the caller's, missing or not, is answered by `refusal`.
pub(super) const fn holder(held: &'static [Step], refusal: &'static [Step]) -> Step {
    Step::Holder { get: get(0), token: TOKEN, held, missing: refusal, other: refusal }
}

pub(super) const ZERO: &[Step] = &[integer(0)];
pub(super) const FALSE: &[Step] = &[Step::Return(Give::Nil)];
pub(super) const REFUSED: &[Step] = &[Step::Return(Give::Error("ERR ERROR"))];

pub(super) const ADD_MILLIS: &[Step] = &[holder(
    &[
        Step::Keep(call(1, "PTTL", &[K1])),
        Step::IfKept { is: Test::Below(0), then: ZERO },
        Step::Call(call(2, "PEXPIRE", &[K1, Arg::KeptPlus(Role::Argument(2))])),
        integer(1),
    ],
    ZERO,
)];
pub(super) const SETNX: Do = call(0, "SETNX", &[K1, A1]);
pub(super) const SETNX_EXPIRE: &[Step] = &[Step::If {
    reply: SETNX,
    is: Test::Equals(1),
    then: &[Step::Call(call(1, "EXPIRE", &[K1, A2])), integer(1)],
    otherwise: ZERO,
}];
pub(super) const SETNX_PEXPIRE: &[Step] = &[Step::If {
    reply: SETNX,
    is: Test::Equals(1),
    then: &[Step::Call(call(1, "PEXPIRE", &[K1, A2])), integer(1)],
    otherwise: ZERO,
}];
pub(super) const SET_PX: &[Step] = &[Step::Return(Give::Call(call(1, "SET", &[K1, A1, PX, A2])))];
pub(super) const SET_PX_THIRD: &[Step] = &[Step::Return(Give::Call(call(2, "SET", &[K1, A1, PX, A2])))];
pub(super) const READ_AND_OK: &[Step] = &[Step::Call(get(1)), Step::Return(Give::Status("OK"))];
pub(super) const READ_AND_NIL: &[Step] = &[Step::Call(get(1)), Step::Return(Give::Nil)];
/// Redis goes back to the caller's database when the script ends, and so must whoever carries out the call.
pub(super) const SELECT: Step = Step::Try(call(0, "SELECT", &[Arg::Number(TOKEN)]));
pub(super) const GET_EACH: Do = call(0, "GET", &[EACH]);
pub(super) const SET_EACH: Step = Step::EachKey(&[Step::Call(call(1, "SET", &[EACH, A1, PX, A2]))]);
/// MGET reads a key of another type as missing, and so does this.
pub(super) const HELD_BY_ALL: Step =
    Step::EachKey(&[Step::Shared { get: GET_EACH, token: TOKEN, other: &[Step::Return(Give::Nil)] }]);
