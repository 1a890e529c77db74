-- Fencing tokens of redlatch in MariaDB 10.2 and MySQL 5.7, and later. May be run again. For the client `mysql`, which knows DELIMITER.
--
-- First in a transaction that writes under a lock, with the name of the lock and the token of its grant:
--
--     CALL redlatch_fence('orders', 41);
--
-- It rolls the transaction back and fails if a transaction with a higher token of this lock has called it before and committed.
-- Until the transaction ends, others that call it for the same lock wait.

CREATE TABLE IF NOT EXISTS redlatch_fence (
    lock_name VARBINARY(255) NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;

DROP PROCEDURE IF EXISTS redlatch_fence;

DELIMITER $$

CREATE PROCEDURE redlatch_fence(IN of_lock VARBINARY(255), IN of_token BIGINT UNSIGNED)
BEGIN
    DECLARE newest BIGINT UNSIGNED;
    DECLARE message VARCHAR(128);
    INSERT INTO redlatch_fence (lock_name, token) VALUES (of_lock, of_token)
        ON DUPLICATE KEY UPDATE token = GREATEST(token, of_token);
    -- A plain SELECT may read an older snapshot.
    SELECT token INTO newest FROM redlatch_fence WHERE lock_name = of_lock FOR UPDATE;
    IF newest > of_token THEN
        -- An error alone would leave the transaction open to a COMMIT.
        ROLLBACK;
        SET message = CONCAT('stale fencing token ', of_token, ': ', newest, ' is known of this lock');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = message;
    END IF;
END$$

DELIMITER ;
