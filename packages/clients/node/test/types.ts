// What the types allow and refuse. Nothing here is run.

import { Cluster, Redis } from "ioredis";
import Ioredis5 from "ioredis5";
import mysql from "mysql2/promise";
import pg from "pg";
import { createClient, createCluster, createSentinel } from "redis";
import * as redis4 from "redis4";
import * as redis5 from "redis5";
import { Holder, LockHeld, LockLost, Locks, once } from "redlatch-client";

export const clients: Locks[] = [
  new Locks(new Redis()),
  new Locks(new Cluster([]), { budget: 2_000, onUnavailable: "open" }),
  new Locks(new Ioredis5.default()),
  new Locks(new Ioredis5.Cluster([])),
  new Locks(createClient()),
  new Locks(createCluster({ rootNodes: [] })),
  new Locks(createSentinel({ name: "locks", sentinelRootNodes: [] })),
  new Locks(redis5.createClient()),
  new Locks(redis5.createCluster({ rootNodes: [] })),
  new Locks(redis5.createSentinel({ name: "locks", sentinelRootNodes: [] })),
  new Locks(redis4.createClient()),
  new Locks(redis4.createCluster({ rootNodes: [] })),
];

export async function use(locks: Locks, client: pg.PoolClient, connection: mysql.Connection): Promise<string> {
  const count: number = await locks.lock("k", { wait: Infinity, permits: [1, 4] }).using(async (held) => {
    const token: number | null = held.token;
    await held.fenced(client, "orders");
    await held.fenced(connection);
    await fetch("http://localhost/", { signal: held.lost, headers: { "Fencing-Token": String(token) } });
    return 7;
  });
  const job: (name: string) => Promise<number | undefined> = once(locks, "k", { atLeast: 50_000 }, (name: string) => name.length);
  const holder: Holder | null = await locks.lockedBy(Buffer.from("k"));
  return `${count} ${await job("a")} ${holder?.owner ?? ""}`;
}

export async function scopes(): Promise<void> {
  await using locks = new Locks(new Redis());
  await using held = await locks.all(["a", "b"], { lease: 10_000, stopBefore: 3_000 }).acquire();
  if (!held.open) await held.extend();
  const any = locks.anyOf(["gpu:0", "gpu:1"], { priority: 5, modes: { "gpu:0": [1, 4], "gpu:1": "shared" } });
  await using gpu = await any.acquire();
  const handed: number | null = await gpu.transferTo("job-2", 10_000);
  console.log(gpu.key, handed);
  const opened: number = locks.opened;
  console.log(opened);
}

export function tell(error: unknown): string | null | undefined {
  if (error instanceof LockHeld) return error.holder?.meta.reason;
  return error instanceof LockLost ? error.text : null;
}

// @ts-expect-error: no client
new Locks({});
// @ts-expect-error: closed or open
new Locks(new Redis(), { onUnavailable: "ajar" });
// @ts-expect-error: several locks are exclusive, but for their modes
clients[0].all(["a"], { shared: true });
// @ts-expect-error: no kind of lock
clients[0].anyOf(["a"], { modes: { a: "reentrant" } });
// @ts-expect-error: made by `acquire` only
new LockLost("k", 1, "broken");
