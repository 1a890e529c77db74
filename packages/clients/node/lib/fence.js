// The statement with which a database checks a fencing token: that of `redlatch fence sql`, for each kind of connection.

import { NotSupported, StaleToken } from "./errors.js";

/**
 * Sends it through a connection that is in a transaction. Throws StaleToken if the database refuses the token, and a TypeError
 * if each statement of the connection commits by itself; other errors of the database are left as they are.
 */
export async function fence(connection, name, token) {
  if (token === null) throw new NotSupported("a fencing token");
  const check = checkOf(connection);
  try {
    await check(name, token);
  } catch (error) {
    if (String(error?.message).includes("stale fencing token")) throw new StaleToken(error.message, { cause: error });
    throw error;
  }
  if (isOutside(connection)) {
    throw new TypeError("outside of a transaction, where each statement commits by itself, a fence protects nothing: begin one");
  }
}

/** Whether the driver knows that there is no transaction. MySQL and MariaDB have refused the statement then. */
function isOutside(connection) {
  return connection.getTransactionStatus?.() === "I" || (connection.inTransaction ?? connection.isTransaction) === false;
}

/** What asks the database, by what the connection can do. */
function checkOf(connection) {
  const can = (name) => typeof connection?.[name] === "function";
  if (can("getConnection") || (can("query") && can("connect") && "idleCount" in connection)) {
    throw new TypeError("a pool: the fence needs the one connection that has the transaction");
  }
  // mysql2: its connections for callbacks have `promise()`.
  if (can("query") && can("execute")) {
    const promised = can("promise") ? connection.promise() : connection;
    return (...values) => promised.query("CALL redlatch_fence(?, ?)", values);
  }
  // node-postgres: Client, PoolClient.
  if (can("query")) {
    return async (...values) => {
      // Before version 8.21, pg does not tell whether there is a transaction. Outside of one, this fails.
      if (!can("getTransactionStatus")) await connection.query("SAVEPOINT redlatch_fence; RELEASE SAVEPOINT redlatch_fence");
      await connection.query("SELECT redlatch_fence($1, $2)", values);
    };
  }
  // better-sqlite3, node:sqlite.
  if (can("prepare") && can("exec")) {
    return (...values) => connection.prepare("INSERT OR REPLACE INTO redlatch_fence VALUES (?, ?)").run(...values);
  }
  throw new TypeError("no connection of pg, mysql2, better-sqlite3 or node:sqlite");
}
