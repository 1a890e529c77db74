// The terms of a lock. Generated from crates/proto/src/lock.rs: UPDATE_README=1 cargo test --test suite -- readme

/** Bytes of the longest owner. */
export const OWNER_BYTES_MAX = 1024;
/** Bytes of all fields and values of meta. */
export const META_BYTES_MAX = 4096;
/** Fields of meta. */
export const META_FIELDS_MAX = 64;
/** Permits of the largest semaphore. */
export const PERMITS_MAX = 2147483647;
/** Keys of one request. */
export const KEYS_MAX = 1000;
/** The highest priority. The lowest is 0. */
export const PRIORITY_MAX = 9;
/** The lease of a lock that names none. Milliseconds. */
export const LEASE_DEFAULT = 30_000;
/** The longest lease. Milliseconds. */
export const LEASE_MAX = 315_360_000_000;
/** How long a call may take beside its wait, unless the user says otherwise. Milliseconds. */
export const BUDGET_DEFAULT = 5_000;
/** How long one request may take beside its wait. Milliseconds. */
export const ANSWER_MAX = 5_000;
/** One request waits no longer than this. A longer wait asks again. Milliseconds. */
export const WAIT_MAX = 3_600_000;

export const BROKEN = "broken";
export const DELETED = "deleted";
export const EXPIRED = "expired";
export const FLUSHED = "flushed";
export const RELEASED = "released";
export const SESSION = "session";
export const TRANSFERRED = "transferred";
export const NOT_HELD = "not-held";
export const UNRENEWED = "unrenewed";
/** What each reason for which a lock is lost means. */
export const REASONS = {
  [BROKEN]: "it was broken by an operator",
  [DELETED]: "its key was deleted or overwritten",
  [EXPIRED]: "its lease has ended",
  [FLUSHED]: "all keys were removed",
  [RELEASED]: "it was released",
  [SESSION]: "its session has ended",
  [TRANSFERRED]: "it was handed over to another owner",
  [NOT_HELD]: "the server no longer knows it",
  [UNRENEWED]: "no renewal has succeeded in time",
};
