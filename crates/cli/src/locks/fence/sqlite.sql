-- Fencing tokens of redlatch in SQLite 3. May be run again.
--
-- First in a transaction that writes under a lock, with the name of the lock and the token of its grant:
--
--     INSERT OR REPLACE INTO redlatch_fence VALUES ('orders', 41);
--
-- It rolls the transaction back and fails if a transaction with a higher token of this lock has done so before and committed,
-- and for a value that is no token.

CREATE TABLE IF NOT EXISTS redlatch_fence (
    lock_name TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL
);

CREATE TRIGGER IF NOT EXISTS redlatch_fence_refuses BEFORE INSERT ON redlatch_fence
WHEN (SELECT token FROM redlatch_fence WHERE lock_name = NEW.lock_name) > NEW.token
BEGIN
    SELECT RAISE(ROLLBACK, 'stale fencing token: a higher one is known of this lock');
END;

-- SQLite stores any value in any column, and orders every text after all numbers.
CREATE TRIGGER IF NOT EXISTS redlatch_fence_reads BEFORE INSERT ON redlatch_fence
WHEN typeof(NEW.token) <> 'integer' OR NEW.token < 1
BEGIN
    SELECT RAISE(ROLLBACK, 'no fencing token: a token is a whole number from 1 on');
END;
