// redis-semaphore's other kinds: semaphores of one permit and of several, and each kind over three servers.
import Redis from "ioredis";
import semaphore from "redis-semaphore";
import {
  HOST,
  LEASE_MS,
  PORTS,
  check,
  done,
  handover,
  pause,
  race,
  refusal,
  stopwatch,
  until,
} from "./checks.js";

const { MultiSemaphore, RedlockMultiSemaphore, RedlockMutex, RedlockSemaphore, Semaphore } = semaphore;
const { LostLockError, TimeoutError } = semaphore;
const clients = PORTS.map((port) => new Redis({ host: HOST, port }));
const [client] = clients;
check("three servers", clients.length === 3);

const LIMIT = 3;
const settings = (options) => ({ refreshInterval: 0, retryInterval: 5, ...options });
const kinds = {
  Semaphore: (key, options) => new Semaphore(client, key, LIMIT, settings(options)),
  MultiSemaphore: (key, options) => new MultiSemaphore(client, key, LIMIT, 1, settings(options)),
  RedlockSemaphore: (key, options) => new RedlockSemaphore(clients, key, LIMIT, settings(options)),
  RedlockMultiSemaphore: (key, options) =>
    new RedlockMultiSemaphore(clients, key, LIMIT, 1, settings(options)),
};
const once = { acquireAttemptsLimit: 1 };
const holders = (key) => client.zcard(`semaphore:${key}`);
// Leases do not end in the same instant everywhere: an heir may have got a majority, and not the first server.
const serversOf = async (key, member) =>
  (await Promise.all(clients.map((each) => each.zscore(`semaphore:${key}`, member)))).filter(Boolean).length;

for (const [kind, seat] of Object.entries(kinds)) {
  const says = (name, truth, detail) => check(`${kind}: ${name}`, truth, detail);
  await Promise.all(clients.map((each) => each.flushall()));
  const seats = Array.from({ length: LIMIT }, () => seat("stock"));
  for (const one of seats) await one.acquire();
  says(
    "as many as there are seats",
    (await holders("stock")) === LIMIT && seats.every((one) => one.isAcquired),
  );
  says("each with its lease", (await client.pttl("semaphore:stock")) > 9_000);
  says(
    "one more is refused",
    !(await seat("stock", once).tryAcquire()) && (await holders("stock")) === LIMIT,
  );
  const hasty = seat("stock", { acquireTimeout: 50 });
  says("a wait that is too short is refused", (await refusal(hasty.acquire())) instanceof TimeoutError);
  await hasty.release();
  says("release by a non-owner changes nothing", (await holders("stock")) === LIMIT);
  const next = seat("stock");
  await handover(
    () => next.acquire(),
    () => seats[0].release(),
    `${kind}: `,
  );
  says("and is served by a release", next.isAcquired && (await holders("stock")) === LIMIT);
  for (const one of [next, ...seats.slice(1)]) await one.release();
  says("release", (await client.exists("semaphore:stock")) === 0);

  const elapsed = stopwatch();
  const lapsed = Array.from({ length: LIMIT }, () => seat("lease", { lockTimeout: LEASE_MS }));
  for (const one of lapsed) await one.acquire();
  const heir = seat("lease");
  await heir.acquire();
  says("expiry hands over, not before a lease ended", elapsed() >= LEASE_MS, elapsed());
  const member = heir.identifier + suffix(kind);
  const taken = await serversOf("lease", member);
  await lapsed[0].release();
  const left = await serversOf("lease", member);
  says("the lapsed holder cannot release the heir's", taken > 0 && left >= taken, [taken, left]);
  await heir.release();

  const kept = seat("kept", { lockTimeout: LEASE_MS, refreshInterval: LEASE_MS / 4 });
  await kept.acquire();
  await pause(2 * LEASE_MS);
  says("refresh keeps a short lease", kept.isAcquired && (await holders("kept")) === 1);
  await kept.release();

  let lost;
  const robbed = seat("robbed", { refreshInterval: 20, onLockLost: (error) => (lost = error) });
  await robbed.acquire();
  for (const each of clients) {
    const rivals = Array.from({ length: LIMIT }, (_, index) => [
      Date.now() + 10_000,
      `rival ${index}`,
    ]).flat();
    await each.multi().del("semaphore:robbed").zadd("semaphore:robbed", rivals).exec();
  }
  await until(() => lost);
  says("refresh notices a lost seat", lost instanceof LostLockError && !robbed.isAcquired, lost);

  let inside = 0;
  let most = 0;
  const sit = async () => {
    const own = seat("crowd");
    await own.acquire();
    inside += 1;
    most = Math.max(most, inside);
    await pause(5);
    inside -= 1;
    await own.release();
  };
  await Promise.all(Array.from({ length: 12 }, sit));
  says("never more than there are seats", most > 1 && most <= LIMIT, most);
}

/** A semaphore of several permits keeps a member for each of them. */
function suffix(kind) {
  return kind.endsWith("MultiSemaphore") ? "_0" : "";
}

await Promise.all(clients.map((each) => each.flushall()));
const pair = new MultiSemaphore(client, "pairs", LIMIT, 2, settings());
await pair.acquire();
check("two permits of three", (await holders("pairs")) === 2);
check(
  "two more are refused",
  !(await new MultiSemaphore(client, "pairs", LIMIT, 2, settings(once)).tryAcquire()),
);
check("one is not", await new MultiSemaphore(client, "pairs", LIMIT, 1, settings(once)).tryAcquire());
await pair.release();
check("both are released", (await holders("pairs")) === 1);

const mutex = (options) => new RedlockMutex(clients, "stock", settings(options));
const first = mutex();
const second = mutex();
await first.acquire();
const tokens = await Promise.all(clients.map((each) => each.get("mutex:stock")));
check("RedlockMutex: acquire", tokens.filter((token) => token === first.identifier).length >= 2, tokens);
check("RedlockMutex: contended acquire is refused", !(await mutex(once).tryAcquire()));
await handover(
  () => second.acquire(),
  () => first.release(),
  "RedlockMutex: ",
);
check("RedlockMutex: and is served by the release", second.isAcquired);
const shared = mutex({ identifier: second.identifier, acquiredExternally: true });
check("RedlockMutex: a lock is shared by its token", await shared.tryAcquire());
await shared.release();
check("RedlockMutex: release", (await client.exists("mutex:stock")) === 0);
const elapsed = stopwatch();
await mutex({ lockTimeout: LEASE_MS }).acquire();
await second.acquire();
check("RedlockMutex: expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
await second.release();
await race(async (critical) => {
  const own = mutex();
  await own.acquire();
  await critical();
  await own.release();
});
for (const each of clients) await each.quit();
done();
