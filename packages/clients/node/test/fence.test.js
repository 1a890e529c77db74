// Fencing tokens in databases: `held.fenced`, with the drivers of each.

import { execFileSync, spawn } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished } from "vitest";
import { test } from "redlatch/vitest/test";
import { findBinary } from "redlatch";
import { Redis } from "ioredis";
import Sqlite from "libsql";
import mysql from "mysql2/promise";
import mysqlCallbacks from "mysql2";
import pg from "pg";
import { Locks, NotSupported, StaleToken } from "redlatch-client";
import { closeOrder } from "./examples/orders.js";
import { CLIENTS, Folder } from "./servers.js";

const START_MS_MAX = 120_000;

/** An older hold, which the newer one's holder has outlived. */
async function twoHolds(redlatch) {
  const client = new Redis(redlatch.url);
  const locks = new Locks(client);
  onTestFinished(async () => {
    await locks.close();
    client.disconnect();
  });
  const older = await locks.lock("stock").acquire();
  await older.release();
  return { locks, older, newer: await locks.lock("stock").acquire() };
}

const SQLITES = { libsql: (file) => new Sqlite(file) };
try {
  const { DatabaseSync } = createRequire(import.meta.url)("node:sqlite");
  SQLITES["node:sqlite"] = (file) => new DatabaseSync(file);
} catch {
  // Node has it since version 22.5.
}
try {
  const BetterSqlite = createRequire(import.meta.url)("better-sqlite3");
  SQLITES["better-sqlite3"] = (file) => new BetterSqlite(file);
} catch {
  // It is compiled at its installation, where that can be.
}

describe.each(Object.entries(SQLITES))("%s", (_, open) => {
  test("it refuses the older holder", async ({ redlatch }) => {
    const database = open(":memory:");
    onTestFinished(() => database.close());
    database.exec(execFileSync(findBinary(), ["fence", "sql", "sqlite"], { encoding: "utf8" }));
    database.exec("CREATE TABLE stock (count); INSERT INTO stock VALUES (0)");
    const { older, newer } = await twoHolds(redlatch);
    const write = async (held) => {
      database.exec("BEGIN");
      try {
        await held.fenced(database);
        database.exec("UPDATE stock SET count = count + 1");
        database.exec("COMMIT");
      } catch (error) {
        if (database.inTransaction ?? database.isTransaction) database.exec("ROLLBACK");
        throw error;
      }
    };
    await write(newer);
    await write(newer);
    await expect(write(older)).rejects.toThrow(StaleToken);
    expect(database.prepare("SELECT count FROM stock").get().count).toBe(2);
    expect(database.prepare("SELECT token FROM redlatch_fence WHERE lock_name = 'stock'").get().token).toBe(newer.token);
  });

  test("outside of a transaction it is refused", async ({ redlatch, skip }) => {
    const database = open(":memory:");
    onTestFinished(() => database.close());
    if ((database.inTransaction ?? database.isTransaction) === undefined) skip("this version does not tell");
    database.exec(execFileSync(findBinary(), ["fence", "sql", "sqlite"], { encoding: "utf8" }));
    const { newer } = await twoHolds(redlatch);
    await expect(newer.fenced(database)).rejects.toThrow("outside of a transaction");
  });

  test("other errors are left as they are", async ({ redlatch }) => {
    const without = open(":memory:");
    onTestFinished(() => without.close());
    const { newer } = await twoHolds(redlatch);
    without.exec("BEGIN");
    await expect(newer.fenced(without)).rejects.toThrow("no such table");
  });
});

test("what is no connection is refused", async ({ redlatch }) => {
  const { newer } = await twoHolds(redlatch);
  await expect(newer.fenced({})).rejects.toThrow(TypeError);
  const pool = new pg.Pool();
  await expect(newer.fenced(pool)).rejects.toThrow("a pool");
  await pool.end();
  const other = mysql.createPool({});
  await expect(newer.fenced(other)).rejects.toThrow("a pool");
  await other.end();
  const { fence } = await import("./node_modules/redlatch-client/lib/fence.js");
  await expect(fence({}, "k", null)).rejects.toThrow(NotSupported);
});

/** A database of its own, which ends with the tests. Null where it is not installed. */
async function database(kind) {
  const folder = new Folder();
  const fences = path.join(CLIENTS, "../../tests/locks/fences");
  const words = [path.join(import.meta.dirname, "database.py"), fences, folder.path, kind, findBinary()];
  const child = spawn("python3", words, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("close", resolve));
  const said = await new Promise((resolve) => {
    child.stdout.once("data", (bytes) => resolve(String(bytes).trim()));
    child.once("close", () => resolve(null));
  });
  const stop = async () => {
    child.stdin.end();
    await ended;
    folder.remove();
  };
  if (said?.startsWith("/")) return { address: said, stop };
  await stop();
  if (process.env.REDLATCH_REQUIRE_DATABASES) throw new Error(`${kind}: ${said}`);
  console.log(`skipped: ${kind}: ${said}`);
  return null;
}

/** `open` opens a connection: `query(sql)` on it, what is fenced, and its end. */
function refuses(name, open) {
  return async ({ redlatch, skip }) => {
    const connection = await open(skip);
    onTestFinished(() => connection.end());
    const { older, newer } = await twoHolds(redlatch);
    const write = async (held) => {
      await connection.query("BEGIN");
      try {
        await held.fenced(connection.fenced, name);
        await connection.query("UPDATE stock SET count = count + 1");
        await connection.query("COMMIT");
      } catch (error) {
        await connection.query("ROLLBACK");
        throw error;
      }
    };
    await write(newer);
    await expect(write(older)).rejects.toThrow(StaleToken);
    await expect(newer.fenced(connection.fenced, name)).rejects.toThrow(/outside of a transaction|only be used in transaction/);
    await connection.query(`DELETE FROM redlatch_fence WHERE lock_name = '${name}'`);
  };
}

describe("PostgreSQL", () => {
  let running;
  beforeAll(async () => (running = await database("postgres")), START_MS_MAX);
  afterAll(() => running?.stop(), START_MS_MAX);
  const where = () => ({ host: running.address, user: "postgres", database: "postgres" });

  test("a client of pg", refuses("pg", async (skip) => {
    if (!running) return skip("there is no PostgreSQL");
    const client = new pg.Client(where());
    await client.connect();
    return { fenced: client, query: (sql) => client.query(sql), end: () => client.end() };
  }));

  test("a client of pg before 8.21", refuses("older pg", async (skip) => {
    if (!running) return skip("there is no PostgreSQL");
    const client = new pg.Client(where());
    client.getTransactionStatus = undefined;
    await client.connect();
    return { fenced: client, query: (sql) => client.query(sql), end: () => client.end() };
  }));

  test("a client of a pool of pg", refuses("pool", async (skip) => {
    if (!running) return skip("there is no PostgreSQL");
    const pool = new pg.Pool(where());
    const client = await pool.connect();
    const end = async () => {
      client.release();
      await pool.end();
    };
    return { fenced: client, query: (sql) => client.query(sql), end };
  }));

  test("the example", async ({ redlatch, skip }) => {
    if (!running) return skip("there is no PostgreSQL");
    const client = new pg.Client(where());
    await client.connect();
    onTestFinished(() => client.end());
    const { locks } = await twoHolds(redlatch);
    await closeOrder(locks, client, 7);
    await client.query("UPDATE redlatch_fence SET token = token + 1000000 WHERE lock_name = 'orders'");
    await expect(closeOrder(locks, client, 8)).rejects.toThrow(StaleToken);
    const { rows } = await client.query("SELECT state FROM orders ORDER BY id");
    return expect(rows.map((row) => row.state)).toEqual(["closed", "open"]);
  });
});

describe("MariaDB", () => {
  let running;
  beforeAll(async () => (running = await database("mariadb")), START_MS_MAX);
  afterAll(() => running?.stop(), START_MS_MAX);
  const where = () => ({ socketPath: running.address, user: "writer", database: "shop" });

  test("a connection of mysql2/promise", refuses("promise", async (skip) => {
    if (!running) return skip("there is no MariaDB");
    const connection = await mysql.createConnection(where());
    return { fenced: connection, query: (sql) => connection.query(sql), end: () => connection.end() };
  }));

  test("a connection of a pool of mysql2/promise", refuses("pool", async (skip) => {
    if (!running) return skip("there is no MariaDB");
    const pool = mysql.createPool(where());
    const connection = await pool.getConnection();
    const end = async () => {
      connection.release();
      await pool.end();
    };
    return { fenced: connection, query: (sql) => connection.query(sql), end };
  }));

  test("a connection of mysql2 for callbacks", refuses("callbacks", async (skip) => {
    if (!running) return skip("there is no MariaDB");
    const connection = mysqlCallbacks.createConnection(where());
    return { fenced: connection, query: (sql) => connection.promise().query(sql), end: () => connection.promise().end() };
  }));
});
