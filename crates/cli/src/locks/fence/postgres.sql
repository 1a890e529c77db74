-- Fencing tokens of redlatch in PostgreSQL 9.5 and later. May be run again.
--
-- First in a transaction that writes under a lock, with the name of the lock and the token of its grant:
--
--     SELECT redlatch_fence('orders', 41);
--
-- It fails if a transaction with a higher token of this lock has called it before and committed, and for a value that is no token.
-- The transaction can then only be rolled back. A ROLLBACK TO an earlier savepoint is enough to commit the rest of it: so call this
-- before the first savepoint. Until the transaction ends, others that call it for the same lock wait.
--
-- The role that calls it needs:
--
--     GRANT SELECT, INSERT, UPDATE ON redlatch_fence TO app;

CREATE TABLE IF NOT EXISTS redlatch_fence (
    lock_name text PRIMARY KEY,
    token bigint NOT NULL
);

CREATE OR REPLACE FUNCTION redlatch_fence(of_lock text, of_token bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
BEGIN
    IF of_token < 1 THEN
        RAISE EXCEPTION 'no fencing token: % is below 1', of_token USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO redlatch_fence AS known (lock_name, token) VALUES (of_lock, of_token)
        ON CONFLICT (lock_name) DO UPDATE SET token = greatest(known.token, excluded.token)
        RETURNING token INTO newest;
    IF newest > of_token THEN
        RAISE EXCEPTION 'stale fencing token % of lock %: % is known', of_token, of_lock, newest
            USING ERRCODE = 'RL001';
    END IF;
END;
$$;
