"""The terms of a lock. Generated from crates/proto/src/lock.rs: UPDATE_README=1 cargo test --test suite -- readme"""

#: Bytes of the longest owner.
OWNER_BYTES_MAX = 1024
#: Bytes of all fields and values of meta.
META_BYTES_MAX = 4096
#: Fields of meta.
META_FIELDS_MAX = 64
#: Permits of the largest semaphore.
PERMITS_MAX = 2147483647
#: Keys of one request.
KEYS_MAX = 1000
#: The highest priority. The lowest is 0.
PRIORITY_MAX = 9
#: The lease of a lock that names none. Seconds.
LEASE_DEFAULT = 30.0
#: The longest lease. Seconds.
LEASE_MAX = 315_360_000.0
#: How long a call may take beside its wait, unless the user says otherwise. Seconds.
BUDGET_DEFAULT = 5.0
#: How long one request may take beside its wait. Seconds.
ANSWER_MAX = 5.0
#: One request waits no longer than this. A longer wait asks again. Seconds.
WAIT_MAX = 3_600.0

BROKEN = "broken"
DELETED = "deleted"
EXPIRED = "expired"
FLUSHED = "flushed"
RELEASED = "released"
SESSION = "session"
TRANSFERRED = "transferred"
FORKED = "forked"
NOT_HELD = "not-held"
UNRENEWED = "unrenewed"
#: What each reason for which a lock is lost means.
REASONS = {
    BROKEN: "it was broken by an operator",
    DELETED: "its key was deleted or overwritten",
    EXPIRED: "its lease has ended",
    FLUSHED: "all keys were removed",
    RELEASED: "it was released",
    SESSION: "its session has ended",
    TRANSFERRED: "it was handed over to another owner",
    FORKED: "it belongs to the process that took it, which has made this one by a fork",
    NOT_HELD: "the server no longer knows it",
    UNRENEWED: "no renewal has succeeded in time",
}
