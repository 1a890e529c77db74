// What the scenarios do not say: many contenders at once, aborted waits, the ends of blocks, rights, connections, clusters.

import dns from "node:dns";
import net from "node:net";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { test as isolated } from "redlatch/vitest/test";
import { findBinary, start } from "redlatch";
import { LockHeld, LockLost, Locks, Unreachable } from "redlatch-client";
import { LIBRARIES } from "./libraries.js";
import { PATIENCE, SocketServer, until } from "./servers.js";

/** Takes for each of fifty contenders: REDLATCH_TAKES=1000 for a long run. */
const TAKES = Number(process.env.REDLATCH_TAKES ?? 40);
const LONG_RUN_MS_MAX = 60_000 + TAKES * 2_000;

/** Locks over a client of a library, closed with the test. */
async function locksOf(library, where) {
  const client = await library.single(where);
  const locks = new Locks(client);
  onTestFinished(async () => {
    await locks.close();
    await library.close(client);
  });
  return { client, locks };
}

/** Locks over a client of a server that ends each connection. */
async function unanswered(library, options = {}) {
  const server = net.createServer((socket) => socket.destroy());
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  const client = library.apart({ host: "127.0.0.1", port });
  const locks = new Locks(client, { budget: 500, ...options });
  onTestFinished(async () => {
    await locks.close();
    await library.close(client);
    server.close();
  });
  return locks;
}

/** What a call comes to at a moment of the client's clock. */
function at(ms, call) {
  const clock = vi.spyOn(performance, "now").mockReturnValue(ms);
  try {
    return call();
  } finally {
    clock.mockRestore();
  }
}

function whereIs({ host, port, password }) {
  return { host, port, password };
}

const breaks = (redlatch, held, ...reason) => redlatch.call("LOCK.BREAK", held.key, "TOKEN", held.token, ...reason);

describe.each(Object.entries(LIBRARIES))("%s", (name, library) => {
  isolated("fifty contenders exclude each other", { timeout: LONG_RUN_MS_MAX }, async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const tokens = [];
    let users = 0;
    const contend = async () => {
      for (let take = 0; take < TAKES; take++) {
        await locks.lock("k", { wait: LONG_RUN_MS_MAX }).using(async (held) => {
          expect(++users).toBe(1);
          tokens.push(held.token);
          await new Promise(setImmediate);
          users -= 1;
        });
      }
    };
    await Promise.all(Array.from({ length: 50 }, contend));
    expect(tokens.length).toBe(50 * TAKES);
    expect(tokens.every((token, at) => at === 0 || token > tokens[at - 1])).toBe(true);
    if (TAKES >= 1000) console.log(`${name}: ${tokens.length} takes, none twice, tokens ${tokens[0]} to ${tokens.at(-1)}`);
  });

  isolated("idle connections are used again, and few are kept", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    for (let round = 0; round < 2; round++) {
      await Promise.all(Array.from({ length: 30 }, (_, n) => locks.lock(`k${n}`, { wait: 1_000 }).using(() => {})));
    }
    const connections = async () => (await redlatch.call("CLIENT", "LIST")).trim().split("\n").length;
    // The user's, that of this test, those for requests and for losses, and eight.
    expect(await until(connections, (count) => count <= 12)).toBeGreaterThanOrEqual(4);
  });

  isolated("an aborted wait leaves the queue", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k").acquire();
    const stop = new AbortController();
    const waiting = locks.lock("k", { wait: Infinity, signal: stop.signal }).acquire();
    waiting.catch(() => {});
    await until(() => locks.lockedBy("k"), (holder) => holder.waiters === 1);
    stop.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
    await until(() => locks.lockedBy("k"), (holder) => holder.waiters === 0);
    await held.release();
    expect(await locks.lockedBy("k")).toBe(null);
    await expect(locks.lock("k", { signal: stop.signal }).acquire()).rejects.toThrow("enough");
  });

  isolated("a hold is lost some time before its deadline", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const margins = [
      [{ lease: 5_000 }, 500],
      [{ lease: 30_000 }, 1_000],
      [{ lease: 30_000, stopBefore: 0 }, 0],
      [{ lease: 30_000, stopBefore: 12_500 }, 12_500],
      [{ session: true, delay: 2_000 }, 200],
      [{ session: true, delay: 60_000 }, 1_000],
      [{ session: true, delay: 60_000, stopBefore: 30_000 }, 30_000],
    ];
    for (const [options, margin] of margins) {
      const held = await locks.lock("k", options).acquire();
      expect(at(held.deadline - margin - 1, () => held.remaining())).toBeCloseTo(margin + 1);
      expect(at(held.deadline - margin + 1, () => held.remaining())).toBe(0);
      expect(() => held.throwIfLost()).toThrow(/no renewal has succeeded in time/);
      expect(await held.release()).toBe(true);
    }
    const held = await locks.all(["k", "l"], { lease: 5_000, stopBefore: 2_000 }).acquire();
    await held.extend(10_000);
    expect(at(held.deadline - 1_999, () => held.remaining())).toBe(0);
    for (const stopBefore of [-1, 30_000, "1", NaN]) expect(() => locks.lock("k", { stopBefore })).toThrow(RangeError);
  });

  isolated("one that needs long to stop is renewed sooner", { timeout: PATIENCE }, async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k", { lease: 24_000, stopBefore: 20_000 }).acquire();
    const { deadline } = held;
    await until(() => held.deadline > deadline || held.lost.aborted, Boolean);
    expect(held.lost.aborted).toBe(false);
  });

  isolated("a lease is not extended by less than it takes to stop, but may be left so", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k", { stopBefore: 5_000 }).acquire();
    await expect(held.extend(5_000)).rejects.toThrow(RangeError);
    await held.extend(6_000);
    await held.leave(3_000);
    expect(held.lost.aborted).toBe(false);
    expect((await locks.lockedBy("k")).left).toBeLessThanOrEqual(3_000);
  });

  test("an open hold is counted and warned of, and asks no database", { timeout: PATIENCE }, async () => {
    const warnings = [];
    const listen = (warning) => warnings.push(warning);
    process.on("warning", listen);
    onTestFinished(() => process.off("warning", listen));
    const locks = await unanswered(library, { onUnavailable: "open" });
    const held = await locks.lock("k").acquire();
    expect([held.open, held.token, locks.opened]).toEqual([true, null, 1]);
    const [warning] = await until(() => warnings, (all) => all.some(({ code }) => code === "REDLATCH_OPEN_HOLD"));
    expect(warning).toMatchObject({ name: "RedlatchWarning", message: expect.stringContaining("k is not locked") });
    const database = new Proxy({}, { get: (_, name) => expect.unreachable(`${String(name)} of the database is used`) });
    await expect(held.fenced(database)).rejects.toThrow(/k is not locked/);
    await expect(held.fenced(database)).rejects.toThrow(Unreachable);
    await expect(held.transferTo("next")).rejects.toThrow(Unreachable);
    await held.extend(5_000);
    await held.leave(5_000);
    held.throwIfLost();
    expect([held.remaining(), held.lost.aborted, await held.release()]).toEqual([Infinity, false, false]);
    // A block under one ends without a loss.
    expect(await locks.lock("k", { session: true }).using((open) => open.open)).toBe(true);
    expect(locks.opened).toBe(2);
  });

  test("without the wish for it, nothing is opened", { timeout: PATIENCE }, async () => {
    const locks = await unanswered(library);
    await expect(locks.lock("k").acquire()).rejects.toThrow(Unreachable);
    expect(locks.opened).toBe(0);
    expect(() => new Locks(library.apart({ host: "127.0.0.1", port: 1 }), { onUnavailable: "ajar" })).toThrow(RangeError);
    const closed = await unanswered(library, { onUnavailable: "open" });
    await closed.close();
    await expect(closed.lock("k").acquire()).rejects.toThrow(/closed/);
  });

  isolated("a session can be waited for, aborted, and ends with its lock", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const first = await locks.lock("k", { session: true }).acquire();
    expect(first.deadline).toBe(Infinity);
    const stop = new AbortController();
    const waiting = locks.lock("k", { session: true, delay: 600_000, wait: Infinity, signal: stop.signal }).acquire();
    waiting.catch(() => {});
    await until(() => locks.lockedBy("k"), (holder) => holder.waiters === 1);
    stop.abort();
    await expect(waiting).rejects.toThrow(/abort/);
    await until(() => locks.lockedBy("k"), (holder) => holder.waiters === 0);
    expect(first.lost.reason).toBe(undefined);
    expect(await first.release()).toBe(true);
    expect(await locks.lockedBy("k")).toBe(null);
  });

  isolated("a request has its limit, also after others were answered in theirs", async ({ redlatch }) => {
    const { locks } = await locksOf(library, { ...whereIs(redlatch), timeout: 500 });
    const held = await locks.lock("k").acquire();
    await redlatch.call("TEST.FAULT", "ADD", "COMMAND", "LOCK.RELEASE", "DO", "STALL", "60000");
    const failure = await held.release().catch((error) => error);
    expect(failure).toBeInstanceOf(Unreachable);
    expect(failure.message).toMatch(/has not answered for 500 ms/);
  });

  test("a call ends at its budget while a name is looked up", { timeout: PATIENCE }, async () => {
    // Other tests look nothing up.
    const lookup = vi.spyOn(dns, "lookup").mockImplementation(() => {});
    const client = library.apart({ host: "hangs.test", port: 1 });
    const locks = new Locks(client, { budget: 300 });
    onTestFinished(async () => {
      lookup.mockRestore();
      await locks.close();
      await library.close(client);
    });
    for (const wait of [0, 500]) {
      const begun = performance.now();
      await expect(locks.lock("k", { wait }).acquire()).rejects.toBeInstanceOf(Unreachable);
      expect(performance.now() - begun).toBeLessThan(PATIENCE / 6);
    }
    expect(lookup).toHaveBeenCalled();
    expect(() => new Locks(client, { budget: 0 })).toThrow(RangeError);
    expect(() => new Locks(client, { bugdet: 300 })).toThrow(TypeError);
  });

  test("a connection that comes after its call has given up is ended", { timeout: PATIENCE }, async () => {
    const sockets = [];
    const peer = net.createServer((socket) => sockets.push(socket.resume().on("error", () => {})));
    await new Promise((resolve) => peer.listen(0, "127.0.0.1", resolve));
    const lookups = [];
    const lookup = vi.spyOn(dns, "lookup").mockImplementation((host, { all }, found) => {
      lookups.push(() => (all ? found(null, [{ address: "127.0.0.1", family: 4 }]) : found(null, "127.0.0.1", 4)));
    });
    const client = library.apart({ host: "late.test", port: peer.address().port });
    const locks = new Locks(client, { budget: 300 });
    onTestFinished(async () => {
      lookup.mockRestore();
      await locks.close();
      await library.close(client);
      peer.close();
    });
    await expect(locks.lock("k", { session: true }).acquire()).rejects.toBeInstanceOf(Unreachable);
    await until(() => lookups.length, Boolean);
    for (const answer of lookups) answer();
    // Of a library that does not connect any more, this is the only one. The others come before it.
    net.connect(peer.address().port, "127.0.0.1").end();
    await until(() => sockets.length > 0 && sockets.every((socket) => socket.closed), Boolean);
  });

  isolated("a renewal does not wait for what the program waits for", async ({ redlatch }) => {
    const { client, locks } = await locksOf(library, whereIs(redlatch));
    const blocked = client.callBuffer ? client.blpop("list", 0) : client.sendCommand(["BLPOP", "list", "0"]);
    blocked.catch(() => {});
    const held = await locks.lock("k", { lease: 1_500 }).acquire();
    const renewals = async () => (await redlatch.call("LOCK.WHO", "k")).holders[0].renewals;
    await until(renewals, (count) => count >= 4);
    held.throwIfLost();
    await redlatch.call("RPUSH", "list", "x");
    await blocked;
  });

  test("a user who may not subscribe finds losses out by renewal", { timeout: PATIENCE * 2 }, async () => {
    // Users are those of a server, not of a namespace.
    const server = await new SocketServer([findBinary(), "--port", "0", "--unixsocket", "SOCKET"]).start();
    onTestFinished(() => server.stop());
    const operator = await library.single({ path: server.socket });
    onTestFinished(() => library.close(operator));
    const ask = (...words) => (operator.callBuffer ? operator.call(...words) : operator.sendCommand(words));
    await ask("ACL", "SETUSER", "default", "resetchannels");
    const warnings = [];
    const listen = (warning) => warnings.push(warning.message);
    process.on("warning", listen);
    onTestFinished(() => process.off("warning", listen));
    const { locks } = await locksOf(library, { path: server.socket });
    const held = await locks.lock("k", { lease: 3_000 }).acquire();
    await until(() => warnings.join(), (text) => text.includes("renewals only"));
    await ask("DEL", "k");
    await until(() => held.lost.aborted, Boolean);
    expect(held.lost.reason.reason).toBe("not-held");
  });
});

describe("with the newest libraries", () => {
  const library = LIBRARIES["ioredis 6"];

  isolated("a time limit that the client was given as a text, as from an address, is one", async ({ redlatch }) => {
    const { locks } = await locksOf(library, { ...whereIs(redlatch), timeout: "2000" });
    const held = await locks.lock("k").acquire();
    expect(await held.release()).toBe(true);
  });

  isolated("a wait is one request", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k").acquire();
    const waiting = locks.lock("k", { wait: PATIENCE }).acquire();
    // So long a client that polls has asked many times.
    await until(async () => (await redlatch.call("LOCK.WHO", "k")).waited, (waited) => waited >= 200);
    await held.release();
    await (await waiting).release();
    const events = await redlatch.history({ command: "LOCK.ACQUIRE" });
    expect(events.filter((event) => event.kind === "request").length).toBe(2);
  });

  isolated("a refusal says who, why and since when", async ({ redlatch }) => {
    await redlatch.clock.freeze();
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("it's", { owner: "alice", meta: { reason: "stocktaking" }, renew: false }).acquire();
    const since = new Date(await redlatch.clock.now()).toISOString().slice(0, 19).replace("T", " ");
    await redlatch.clock.advance(2_000);
    const refusal = await locks.lock("it's").acquire().catch((error) => error);
    expect(refusal).toBeInstanceOf(LockHeld);
    expect(refusal.name).toBe("LockHeld");
    const { address } = refusal.holder;
    expect(refusal.message.split("\n")).toEqual([
      "it's is held",
      "  key:    it's",
      "  holder: alice",
      `  at:     ${address}`,
      "  reason: stocktaking",
      `  since:  ${since} UTC, for 2.0 s`,
      "  lease:  28.0 s left",
      `  token:  ${held.token}`,
      "  queue:  0 waiting",
      `To take it by force: redlatch break 'it'"'"'s' --token ${held.token}`,
    ]);
  });

  isolated("a block whose lock was lost says so at its end", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const lock = locks.lock("k");
    const lose = async (held) => {
      await breaks(redlatch, held);
      await until(() => held.lost.aborted, Boolean);
    };
    await expect(lock.using(lose)).rejects.toThrow(LockLost);
    // Its own error is its own.
    const failing = lock.using(async (held) => {
      await lose(held);
      throw new SyntaxError("mine");
    });
    await expect(failing).rejects.toThrow("mine");
    // What the signal has ended has ended because of the loss.
    const aborted = lock.using(async (held) => {
      await breaks(redlatch, held);
      const { setTimeout: pause } = await import("node:timers/promises");
      await pause(PATIENCE, undefined, { signal: held.lost });
    });
    const loss = await aborted.catch((error) => error);
    expect(loss).toBeInstanceOf(LockLost);
    expect(loss.cause.name).toBe("AbortError");
    expect(await lock.using(() => 7)).toBe(7);
  });

  isolated("a loss that only the release finds is thrown at the end", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    await expect(locks.lock("k").using((held) => breaks(redlatch, held))).rejects.toThrow(LockLost);
    await locks.lock("k").using((held) => held.release());
  });

  isolated("the end of `await using` releases, and says that the lock was lost", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k").acquire();
    await held[Symbol.asyncDispose]();
    expect(await locks.lockedBy("k")).toBe(null);
    const lost = await locks.lock("k").acquire();
    await breaks(redlatch, lost);
    await until(() => lost.lost.aborted, Boolean);
    await expect(lost[Symbol.asyncDispose]()).rejects.toThrow(LockLost);
    // Once is enough.
    const told = await locks.lock("k").acquire();
    await breaks(redlatch, told);
    await until(() => told.lost.aborted, Boolean);
    expect(() => told.throwIfLost()).toThrow(told.lost.reason);
    await told[Symbol.asyncDispose]();
  });

  isolated("a lock object serves several at once, and nests if it is reentrant", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const lock = locks.lock("k", { reentrant: true });
    await lock.using(async (outer) => {
      await lock.using(async (inner) => {
        expect(inner.token).toBe(outer.token);
        expect((await lock.lockedBy()).permits).toBe(2);
      });
      expect((await lock.lockedBy()).permits).toBe(1);
    });
    expect(await lock.lockedBy()).toBe(null);
    const shared = locks.lock("k", { shared: true });
    const readers = await Promise.all([shared.acquire(), shared.acquire()]);
    expect((await shared.lockedBy()).holders).toBe(2);
    for (const reader of readers) expect(await reader.release()).toBe(true);
  });

  isolated("one of several keys has its bytes and the prefix of the client", async ({ redlatch }) => {
    const { locks } = await locksOf(library, { ...whereIs(redlatch), keyPrefix: "app:" });
    const keys = [Buffer.from([0x61, 0xff]), "b"];
    const first = await locks.anyOf(keys).acquire();
    expect(first.key).toBe("app:a\\xff");
    const second = await locks.anyOf(keys, { modes: { b: [1, 2] }, wait: 1_000 }).acquire();
    expect([second.key, (await locks.lockedBy("b")).kind]).toEqual(["app:b", "permits"]);
    const refusal = await locks.anyOf(keys).acquire().catch((error) => error);
    expect(refusal).toBeInstanceOf(LockHeld);
    expect(refusal.holder.token).toBe(first.token);
    const waiting = locks.anyOf(["b", keys[0]], { wait: PATIENCE }).acquire();
    await until(() => locks.lockedBy("b"), (holder) => holder.waiters === 1);
    expect(await first.release()).toBe(true);
    const third = await waiting;
    expect(third.key).toBe("app:a\\xff");
    await third.extend(60_000);
    expect(await third.release()).toBe(true);
    expect(await locks.lockedBy(keys[0])).toBe(null);
    second.throwIfLost();
  });

  isolated("an aborted wait for one of several leaves every queue, and holds nothing", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.all(["a", "b"]).acquire();
    const stop = new AbortController();
    const waiting = locks.anyOf(["a", "b"], { wait: Infinity, signal: stop.signal }).acquire();
    waiting.catch(() => {});
    await until(() => locks.lockedBy("b"), (holder) => holder.waiters === 1);
    stop.abort(new Error("enough"));
    await expect(waiting).rejects.toThrow("enough");
    await until(() => locks.lockedBy("b"), (holder) => holder.waiters === 0);
    expect(await held.release()).toBe(true);
    expect([await locks.lockedBy("a"), await locks.lockedBy("b")]).toEqual([null, null]);
  });

  isolated("the end of a block is silent about a lock that was handed over", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    let waiting;
    let old;
    const token = await locks.lock("k").using(async (held) => {
      old = held;
      waiting = locks.lock("k", { owner: "next", wait: PATIENCE }).acquire();
      await until(() => locks.lockedBy("k"), (holder) => holder.waiters === 1);
      return held.transferTo("next");
    });
    const next = await waiting;
    expect(next.token).toBe(token);
    expect(old.lost.reason.reason).toBe("transferred");
    expect(() => old.throwIfLost()).toThrow("handed over");
    expect([old.remaining(), await old.release()]).toEqual([0, false]);
    await old[Symbol.asyncDispose]();
    // An owner that does not wait has a lease, and asks under its name.
    await expect(next.transferTo("third")).rejects.toThrow("NOLEASE");
    next.throwIfLost();
    const after = await next.transferTo("third", 60_000);
    expect(after).toBeGreaterThan(token);
    const third = await locks.lock("k", { owner: "third" }).acquire();
    expect(third.token).toBe(after);
    await third.release();
    await expect(third.transferTo("fourth", 60_000)).rejects.toThrow("it was released");
  });

  isolated("a session is handed over to the session that waits", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k", { session: true }).acquire();
    const waiting = locks.lock("k", { session: true, owner: Buffer.from([0xfe]), wait: PATIENCE }).acquire();
    await until(() => locks.lockedBy("k"), (holder) => holder.waiters === 1);
    const token = await held.transferTo(Buffer.from([0xfe]));
    const next = await waiting;
    expect(next.token).toBe(token);
    await until(() => held.lost.aborted, Boolean);
    next.throwIfLost();
    expect(await next.release()).toBe(true);
  });

  isolated("what is lost, or several locks, is not handed over", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const lost = await locks.lock("k").acquire();
    await breaks(redlatch, lost);
    await expect(lost.transferTo("next", 1_000)).rejects.toThrow(LockLost);
    expect(await locks.lockedBy("k")).toBe(null);
    const several = await locks.all(["k", "l"]).acquire();
    await expect(several.transferTo("next", 1_000)).rejects.toThrow(TypeError);
    for (const [owner, lease] of [["", 1], ["x".repeat(2_000), 1], [several.owner, 1], ["next", 0], ["next", Infinity]]) {
      await expect(several.transferTo(owner, lease)).rejects.toThrow(RangeError);
    }
    expect(await several.release()).toBe(true);
  });

  isolated("leave keeps the lock without renewal", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k").acquire();
    await held.leave(600_000);
    expect(held.remaining()).toBe(0);
    expect(held.lost.aborted).toBe(false);
    expect(await held.release()).toBe(false);
    expect((await locks.lockedBy("k")).left).toBeGreaterThan(590_000);
  });

  isolated("a hold that was released is neither extended nor lost", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k", { lease: 200 }).acquire();
    expect(await held.release()).toBe(true);
    await expect(held.extend()).rejects.toThrow("it was released");
    await until(() => performance.now(), (moment) => moment > held.deadline);
    expect(held.lost.aborted).toBe(false);
    held.throwIfLost();
  });

  isolated("the deadline counts also while the event loop is blocked", async ({ redlatch }) => {
    const { locks } = await locksOf(library, whereIs(redlatch));
    const held = await locks.lock("k", { lease: 100 }).acquire();
    const { lost } = held;
    while (performance.now() < held.deadline) {
      // Nothing else runs.
    }
    expect(held.remaining()).toBe(0);
    expect(() => held.throwIfLost()).toThrow(LockLost);
    expect(lost.aborted).toBe(true);
    expect(lost.reason.reason).toBe("unrenewed");
  });

  isolated("locks that are closed take none, and fail what waits", async ({ redlatch }) => {
    const { locks, client } = await locksOf(library, whereIs(redlatch));
    const other = new Locks(client);
    onTestFinished(() => other.close());
    const { lost: ofSession } = await locks.lock("k", { session: true }).acquire();
    const { lost: ofLease } = await locks.lock("n", { lease: 500 }).acquire();
    await other.lock("l").acquire();
    const waiting = locks.lock("l", { wait: Infinity }).acquire();
    waiting.catch(() => {});
    await until(() => other.lockedBy("l"), (holder) => holder.waiters === 1);
    await locks.close();
    await expect(waiting).rejects.toThrow(Unreachable);
    await expect(locks.lock("m").acquire()).rejects.toThrow("closed");
    await until(() => other.lockedBy("k"), (holder) => holder === null);
    expect(ofSession.reason.reason).toBe("session");
    // It is not renewed, and ends.
    await until(() => ofLease.aborted, Boolean);
    expect(ofLease.reason.reason).toBe("unrenewed");
  });

  isolated("keys are bytes, with the prefix of the client", async ({ redlatch }) => {
    const { locks } = await locksOf(library, { ...whereIs(redlatch), keyPrefix: "app:" });
    const held = await locks.lock("k").acquire();
    expect(held.key).toBe("app:k");
    expect(await redlatch.call("GET", "app:k")).toBe(held.owner);
    expect((await locks.lockedBy("k")).key).toBe("app:k");
    const key = Buffer.from([0x61, 0xff]);
    const bytes = await locks.lock(key, { owner: Buffer.from([0xfe]) }).acquire();
    expect(bytes.key).toBe("app:a\\xff");
    expect((await locks.lockedBy(key)).owner).toBe("\\xfe");
    await redlatch.call("FLUSHALL");
    await until(() => bytes.lost.aborted, Boolean);
    expect(bytes.lost.reason.reason).toBe("flushed");
  });

  test("what is no client, and what no lock has, is refused", () => {
    expect(() => new Locks({})).toThrow(TypeError);
    const locks = new Locks({ duplicate() {}, callBuffer() {}, once() {} });
    expect(() => locks.lock("k", { leese: 1 })).toThrow("leese");
    expect(() => locks.all(["k"], { shared: true })).toThrow("shared");
    expect(() => locks.lock(7)).toThrow(TypeError);
    expect(() => new Locks("redis://127.0.0.1:6379")).toThrow("no client");
    expect(() => new Locks(null)).toThrow("no client");
    for (const key of [null, undefined, ""]) expect(() => locks.lockedBy(key)).toThrow("key");
    expect(() => locks.all("stock")).toThrow("keys");
    expect(() => locks.anyOf([])).toThrow("a lock needs a key");
    expect(() => locks.anyOf(Array.from({ length: 1_001 }, (_, n) => `k${n}`))).toThrow("keys: 1001, at most 1000");
    for (const wrong of [{ shared: true }, { session: true }]) expect(() => locks.anyOf(["k"], wrong)).toThrow(TypeError);
    for (const modes of [{ l: "shared" }, { k: "reentrant" }, { k: null }]) {
      expect(() => locks.anyOf(["k", "m"], { modes })).toThrow("modes");
    }
    expect(() => locks.all(["k", "m"], { modes: { m: [3, 2] } })).toThrow("permits");
    expect(() => locks.lock("k", { modes: { k: "shared" } })).toThrow("modes");
    for (const priority of [-1, 10, 1.5, "1", null]) expect(() => locks.lock("k", { priority })).toThrow("priority");
    expect(() => locks.lock("k", { owner: "" })).toThrow("owner");
    for (const permits of [0, [1], [1.5, 3], ["1", "3"]]) expect(() => locks.lock("k", { permits })).toThrow(Error);
    expect(() => locks.lock("k", { lease: Infinity })).toThrow(RangeError);
    expect(() => locks.lock("k", { wait: Number.NaN })).toThrow(RangeError);
  });

  isolated("a server that cannot be reached says so", async () => {
    const { locks } = await locksOf(library, { path: "/nowhere/redlatch.sock" });
    await expect(locks.lock("k").acquire()).rejects.toThrow(Unreachable);
    await expect(locks.lock("k").acquire()).rejects.toThrow("/nowhere/redlatch.sock");
  });

  test("a wrong password is refused at once", async () => {
    const words = [findBinary(), "--port", "0", "--unixsocket", "SOCKET", "--requirepass", "secret"];
    const server = new SocketServer(words);
    onTestFinished(() => server.stop());
    await server.start("secret");
    const { locks } = await locksOf(library, { path: server.socket, password: "wrong" });
    await expect(locks.lock("k", { wait: Infinity }).acquire()).rejects.toThrow("WRONGPASS");
  });
});

describe("a cluster", () => {
  let server;
  const nodes = async () => (server ??= await start({ nodes: 3, args: ["--cluster-enabled", "yes"] }));
  afterAll(() => server?.stop());

  for (const [name, library] of Object.entries(LIBRARIES)) {
    test(`losses are told by every node, and locks move with their slots, by ${name}`, async () => {
      const { host, ports } = await nodes();
      const namespace = server.namespace();
      const { password } = namespace;
      const client = await library.cluster({ host, ports, password });
      const locks = new Locks(client);
      onTestFinished(async () => {
        await locks.close();
        await library.close(client);
        await namespace.drop();
      });
      const held = await Promise.all(["a", "b", "c", "d", "e", "f"].map((key) => locks.lock(key).acquire()));
      const slots = await namespace.call("CLUSTER", "SLOTS");
      const node = await namespace.call("CLUSTER", "KEYSLOT", "a");
      const at = slots.findIndex(([first, last]) => first <= node && node <= last);
      await namespace.slots.move(node, ((at + 1) % 3) + 1);
      await held[0].extend(60_000);
      for (const each of held) each.throwIfLost();
      for (const each of held) expect(await each.release()).toBe(true);
    });
  }
});
