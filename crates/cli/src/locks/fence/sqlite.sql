-- Fencing tokens of redlatch in SQLite 3. May be run again.
--
-- First in a transaction that writes under a lock, with the name of the lock and the token of its grant:
--
--     INSERT OR REPLACE INTO redlatch_fence VALUES ('orders', 41);
--
-- It rolls the transaction back and fails if a transaction with a higher token of this lock has done so before and committed.

CREATE TABLE IF NOT EXISTS redlatch_fence (
    lock_name TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL
);

CREATE TRIGGER IF NOT EXISTS redlatch_fence_refuses BEFORE INSERT ON redlatch_fence
WHEN (SELECT token FROM redlatch_fence WHERE lock_name = NEW.lock_name) > NEW.token
BEGIN
    SELECT RAISE(ROLLBACK, 'stale fencing token: a higher one is known of this lock');
END;
