-- Fencing tokens of redlatch in PostgreSQL 9.5 and later. May be run again.
--
-- First in a transaction that writes under a lock, with the name of the lock and the token of its grant:
--
--     SELECT redlatch_fence('orders', 41);
--
-- It fails, and the transaction with it, if a transaction with a higher token of this lock has called it before and committed.
-- Until the transaction ends, others that call it for the same lock wait.

CREATE TABLE IF NOT EXISTS redlatch_fence (
    lock_name text PRIMARY KEY,
    token bigint NOT NULL
);

CREATE OR REPLACE FUNCTION redlatch_fence(of_lock text, of_token bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    newest bigint;
BEGIN
    INSERT INTO redlatch_fence AS known (lock_name, token) VALUES (of_lock, of_token)
        ON CONFLICT (lock_name) DO UPDATE SET token = greatest(known.token, excluded.token)
        RETURNING token INTO newest;
    IF newest > of_token THEN
        RAISE EXCEPTION 'stale fencing token % of lock %: % is known', of_token, of_lock, newest
            USING ERRCODE = 'RL001';
    END IF;
END;
$$;
