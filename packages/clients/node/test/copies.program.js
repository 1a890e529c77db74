// Answers what it gets of a hold; takes and releases a lock of its own, and ends.

import { isMainThread, parentPort, workerData } from "node:worker_threads";
import { Redis } from "ioredis";
import { Locks } from "redlatch-client";

const seen = (copy) => ({ names: Object.keys(copy), canRelease: "release" in copy });

async function takesItsOwn() {
  const client = new Redis(process.argv[2]);
  const locks = new Locks(client);
  await locks.lock("other").using(() => {});
  await locks.close();
  client.disconnect();
}

const answer = isMainThread ? (data) => process.send(data) : (data) => parentPort.postMessage(data);
if (!isMainThread) answer(seen(workerData));
(isMainThread ? process : parentPort).once("message", async (copy) => {
  await takesItsOwn();
  answer(seen(copy));
  if (isMainThread) process.disconnect();
});
