// The client libraries under test, each version of them with the same calls.
//
// where   { path } or { host, port, password }; `timeout` is the library's time limit for a reply, in milliseconds.

import ioredis5 from "ioredis5";
import ioredis6 from "ioredis";
import * as redis4 from "redis4";
import * as redis5 from "redis5";
import * as redis6 from "redis";

const ioredis = (Redis) => ({
  async single({ timeout, ...where }) {
    return quiet(new Redis({ ...where, commandTimeout: timeout }));
  },
  /** A client that does not connect. */
  apart({ host, port }) {
    return quiet(new Redis({ host, port, lazyConnect: true }));
  },
  async cluster({ host, ports, password, timeout }) {
    const nodes = ports.map((port) => ({ host, port }));
    return quiet(new Redis.Cluster(nodes, { redisOptions: { password, commandTimeout: timeout } }));
  },
  async sentinel({ ports, name, timeout }) {
    const sentinels = ports.map((port) => ({ host: "127.0.0.1", port }));
    return quiet(new Redis({ sentinels, name, commandTimeout: timeout }));
  },
  close: (client) => client.disconnect(),
});

const nodeRedis = (library) => ({
  async single({ timeout, path, host, port, password }) {
    const socket = path ? { path } : { host, port };
    return connected(library.createClient({ socket: { ...socket, socketTimeout: timeout }, password }));
  },
  apart({ host, port }) {
    return quiet(library.createClient({ socket: { host, port } }));
  },
  async cluster({ host, ports, password, timeout }) {
    const rootNodes = ports.map((port) => ({ socket: { host, port } }));
    return connected(library.createCluster({ rootNodes, defaults: { password, socket: { socketTimeout: timeout } } }));
  },
  sentinel:
    library.createSentinel &&
    (async ({ ports, name, timeout }) => {
      const sentinelRootNodes = ports.map((port) => ({ host: "127.0.0.1", port }));
      const nodeClientOptions = { socket: { socketTimeout: timeout } };
      return connected(library.createSentinel({ name, sentinelRootNodes, nodeClientOptions }));
    }),
  close(client) {
    if (client.isOpen === false) return undefined;
    return client.destroy ? client.destroy() : client.disconnect();
  },
});

/** The newest versions first. */
export const LIBRARIES = {
  "ioredis 6": ioredis(ioredis6),
  "node-redis 6": nodeRedis(redis6),
  "ioredis 5": ioredis(ioredis5),
  "node-redis 5": nodeRedis(redis5),
  "node-redis 4": nodeRedis(redis4),
};

function quiet(client) {
  return client.on("error", () => {});
}

async function connected(client) {
  await quiet(client).connect();
  return client;
}
