// What every Node client here shares: where the server is, how a check reports, and the race between workers.
import { performance } from "node:perf_hooks";
import { setTimeout as pause } from "node:timers/promises";

export const HOST = process.env.REDLATCH_HOST;
export const PORT = Number(process.env.REDLATCH_PORT);
export const PORTS = process.env.REDLATCH_PORTS.split(",").map(Number);
export const LEASE_MS = 200;
const WORKERS = 4;
const ROUNDS = 15;

/** Prints `ok <name>`, or ends the program with what was seen. */
export function check(name, truth, detail = "not so") {
  if (!truth) {
    console.error(`FAILED ${name}: ${detail}`);
    process.exit(1);
  }
  console.log(`ok ${name}`);
}

/** The error that `promise` is rejected with; undefined if it is fulfilled. */
export async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return undefined;
}

/** A function that tells the milliseconds since it was made. */
export function stopwatch() {
  const start = performance.now();
  return () => performance.now() - start;
}

/** Starts `acquire()`, checks that it waits, calls `release()`, and returns what was acquired then. */
export async function handover(acquire, release, of = "") {
  let isWaiting = true;
  const acquired = acquire().finally(() => (isWaiting = false));
  await pause(50);
  check(`${of}contended acquire waits`, isWaiting);
  await release();
  return acquired;
}

/** Resolves once `truth()` does to something true. The run's own limit is that of the wait. */
export async function until(truth) {
  while (!(await truth())) await pause(5);
}

/**
 * Runs `roundOf(critical)` ROUNDS times in each of WORKERS tasks; it must await `critical()` under the lock.
 * The counter inside loses updates unless its users exclude each other.
 */
export async function race(roundOf) {
  let count = 0;
  let inside = 0;
  let overlaps = 0;
  const critical = async () => {
    inside += 1;
    if (inside > 1) overlaps += 1;
    const seen = count;
    await pause(1);
    count = seen + 1;
    inside -= 1;
  };
  const work = async () => {
    for (let round = 0; round < ROUNDS; round += 1) await roundOf(critical);
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  check("workers never overlap", overlaps === 0, `${overlaps} overlaps`);
  check("no update is lost", count === WORKERS * ROUNDS, `${count} of ${WORKERS * ROUNDS}`);
}

/** The last line of a client that got through. */
export function done() {
  console.log("done");
}

export { pause };
