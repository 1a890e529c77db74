// A hold belongs to the process and the thread that took it: what reaches another one is data that cannot release.

import { fork } from "node:child_process";
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { Redis } from "ioredis";
import { test } from "redlatch/vitest/test";
import { Locks } from "redlatch-client";
import { describe, expect, onTestFinished } from "vitest";

const PROGRAM = new URL("copies.program.js", import.meta.url);
/** What the program answers: which properties a copy has, and whether it can release. */
const INERT = { names: [], canRelease: false };

/** A lock that is held, and a check that it still is. */
async function holding(redlatch) {
  const client = new Redis(redlatch.url);
  const locks = new Locks(client);
  onTestFinished(async () => {
    await locks.close();
    client.disconnect();
  });
  const held = await locks.lock("k").acquire();
  const isHeld = async () => {
    expect(held.lost.aborted).toBe(false);
    expect((await locks.lockedBy("k")).token).toBe(held.token);
  };
  return { held, isHeld };
}

test("a clone and JSON have nothing", async ({ redlatch }) => {
  const { held, isHeld } = await holding(redlatch);
  for (const copy of [structuredClone(held), JSON.parse(JSON.stringify(held)), { ...held }]) {
    expect(copy).toEqual({});
    expect(copy.release).toBe(undefined);
  }
  await isHeld();
});

test("a method does not work on a copy", async ({ redlatch }) => {
  const { held, isHeld } = await holding(redlatch);
  const copy = Object.create(Object.getPrototypeOf(held), Object.getOwnPropertyDescriptors(held));
  expect(() => copy.release()).toThrow(TypeError);
  await isHeld();
});

describe("what is sent", () => {
  test("to a worker", async ({ redlatch }) => {
    const { held, isHeld } = await holding(redlatch);
    const worker = new Worker(PROGRAM, { workerData: held, argv: [redlatch.url] });
    expect(await once(worker, "message")).toEqual([INERT]);
    worker.postMessage(held);
    expect(await once(worker, "message")).toEqual([INERT]);
    await once(worker, "exit");
    await isHeld();
  });

  for (const serialization of ["json", "advanced"]) {
    test(`to a process, as ${serialization}`, async ({ redlatch }) => {
      const { held, isHeld } = await holding(redlatch);
      const child = fork(PROGRAM, [redlatch.url], { serialization });
      child.send(held);
      expect((await once(child, "message"))[0]).toEqual(INERT);
      await once(child, "exit");
      await isHeld();
    });
  }
});
