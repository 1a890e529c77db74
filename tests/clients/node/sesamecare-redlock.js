// @sesamecare-oss/redlock on ioredis, on one server and on three: its scripts choose their database.
import Redis from "ioredis";
import { Lock, Redlock } from "@sesamecare-oss/redlock";
import { HOST, LEASE_MS, PORTS, check, done, handover, pause, race, refusal, stopwatch } from "./checks.js";

const clients = PORTS.map((port) => new Redis({ host: HOST, port }));
check("three servers", clients.length === 3 && (await clients[2].ping()) === "PONG");
const holders = async (key, db = 0) => {
  const counts = clients.map(
    async (client) => (await client.multi().select(db).exists(key).select(0).exec())[1][1],
  );
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
};
// Its refusals say which server refused; whether all did, is in the attempts.
const isRefused = (error) => error?.constructor.name === "ExecutionError";

for (const on of [clients.slice(0, 1), clients]) {
  const of = `${on.length}: `;
  const says = (name, truth, detail) => check(of + name, truth, detail);
  const hasty = new Redlock(on, { retryCount: 0 });
  const patient = new Redlock(on, { retryCount: 2_000, retryDelay: 5, retryJitter: 2 });
  const quorum = on.length === 1 ? 1 : 2;

  const first = await hasty.acquire(["stock"], 10_000);
  says("acquire", (await holders("stock")) >= quorum && (await on[0].get("stock")) === first.value);
  says("contended acquire is refused", isRefused(await refusal(hasty.acquire(["stock"], 10_000))));
  const stranger = () => new Lock(hasty, ["stock"], "not the holder's", [], Date.now() + 10_000);
  says("release by a non-owner is refused", isRefused(await refusal(stranger().release())));
  says("extend by a non-owner is refused", isRefused(await refusal(stranger().extend(60_000))));
  const longer = await first.extend(20_000);
  const ttl = await on[0].pttl("stock");
  says("extend takes the lease anew", ttl > 19_000 && ttl <= 20_000, ttl);
  const second = await handover(
    () => patient.acquire(["stock"], 10_000),
    () => longer.release(),
    of,
  );
  says("and is served by the release", (await on[0].get("stock")) === second.value);
  await second.release();
  says("release", (await holders("stock")) === 0);

  const both = await hasty.acquire(["left", "right"], 10_000);
  says("either of two keys is held", isRefused(await refusal(hasty.acquire(["right", "third"], 10_000))));
  says("a refusal takes nothing", (await holders("third")) === 0);
  await both.release();
  says("both are released", (await holders("left")) + (await holders("right")) === 0);

  const elapsed = stopwatch();
  const lapsed = await hasty.acquire(["lease"], LEASE_MS);
  const heir = await patient.acquire(["lease"], 10_000);
  says("expiry hands over, not before the lease ended", elapsed() >= LEASE_MS, elapsed());
  says("the lapsed holder cannot release", isRefused(await refusal(lapsed.release())));
  await heir.release();

  const held = await hasty.using(
    ["kept"],
    LEASE_MS,
    { automaticExtensionThreshold: 80 },
    async (signal, { lock }) => {
      await pause(2 * LEASE_MS);
      return !signal.aborted && lock.resources[0] === "kept" && (await holders("kept")) >= quorum;
    },
  );
  says("automatic extension keeps a short lease", held && (await holders("kept")) === 0);

  const elsewhere = new Redlock(on, { retryCount: 0, db: 3 });
  const there = await elsewhere.acquire(["stock"], 10_000);
  says("a lock in another database", (await holders("stock", 3)) >= quorum && (await holders("stock")) === 0);
  await (await hasty.acquire(["stock"], 10_000)).release();
  await there.release();
  says("is released there", (await holders("stock", 3)) === 0);

  await race(async (critical) => {
    const lock = await patient.acquire(["race"], 10_000);
    await critical();
    await lock.release();
  });
}
for (const client of clients) await client.quit();
done();
