// The terms of a lock. Generated from crates/proto/src/lock.rs: UPDATE_README=1 cargo test --test suite -- readme

/** Why a lock is lost. */
export type LossReason = "broken" | "deleted" | "expired" | "flushed" | "released" | "session" | "transferred" | "not-held" | "unrenewed";
