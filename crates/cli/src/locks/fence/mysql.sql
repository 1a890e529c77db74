-- Fencing tokens of redlatch in MariaDB 10.2 and MySQL 5.7, and later. May be run again. For the client `mysql`, which knows DELIMITER.
--
-- First in a transaction that writes under a lock, with the name of the lock and the token of its grant:
--
--     CALL redlatch_fence('orders', 41);
--
-- It rolls the transaction back and fails if a transaction with a higher token of this lock has called it before and committed,
-- and for a value that is no token. Outside of a transaction, it always fails. Until the transaction ends, others that call it for
-- the same lock wait.
--
-- The user that calls it needs:
--
--     GRANT EXECUTE ON PROCEDURE redlatch_fence TO app;

CREATE TABLE IF NOT EXISTS redlatch_fence (
    lock_name VARBINARY(255) NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;

DROP PROCEDURE IF EXISTS redlatch_fence;

DELIMITER $$

-- The token is text here, because a sql_mode that is not strict makes some number of any text.
CREATE PROCEDURE redlatch_fence(IN of_lock VARBINARY(255), IN of_token VARCHAR(64))
BEGIN
    DECLARE newest, given BIGINT UNSIGNED;
    DECLARE message VARCHAR(128);
    BEGIN
        DECLARE EXIT HANDLER FOR 1305
            SIGNAL SQLSTATE '45000'
                SET MESSAGE_TEXT = 'redlatch_fence outside of a transaction protects nothing: begin one first';
        -- Outside of a transaction the savepoint ends with its statement.
        SAVEPOINT redlatch_fence;
        RELEASE SAVEPOINT redlatch_fence;
    END;
    IF NOT COALESCE(
        of_token REGEXP '^[1-9][0-9]{0,18}$' AND LPAD(of_token, 19, '0') <= '9223372036854775807', FALSE
    ) THEN
        ROLLBACK;
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no fencing token: a token is a whole number from 1 on';
    END IF;
    SET given = of_token;
    INSERT INTO redlatch_fence (lock_name, token) VALUES (of_lock, given)
        ON DUPLICATE KEY UPDATE token = GREATEST(token, given);
    -- A plain SELECT may read an older snapshot.
    SELECT token INTO newest FROM redlatch_fence WHERE lock_name = of_lock FOR UPDATE;
    IF newest > given THEN
        -- An error alone would leave the transaction open to a COMMIT.
        ROLLBACK;
        SET message = CONCAT('stale fencing token ', given, ': ', newest, ' is known of this lock');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = message;
    END IF;
END$$

DELIMITER ;
