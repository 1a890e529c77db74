// Connections of ioredis: duplicates of the user's client that connect once.

/** What a duplicate has instead of the user's settings. What it sends is sent once, and fails when the connection ends. */
const ONCE = {
  lazyConnect: true,
  retryStrategy: null,
  reconnectOnError: null,
  sentinelRetryStrategy: null,
  failoverDetector: false,
  enableOfflineQueue: true,
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
  enableAutoPipelining: false,
  monitor: false,
  readOnly: false,
  // The prefix is put before keys here, so that it counts for all commands.
  keyPrefix: "",
  commandTimeout: undefined,
  socketTimeout: undefined,
  stringNumbers: false,
  // In RESP2 all versions of ioredis read a map as the same list.
  protocol: 2,
  replyMapping: "legacy",
};

export class IoredisDriver {
  isCluster;
  prefix;
  #client;
  #template;

  constructor(client) {
    this.#client = client;
    this.isCluster = client.isCluster === true;
    this.prefix = client.options?.keyPrefix || client.options?.redisOptions?.keyPrefix || "";
    this.#template = this.isCluster ? null : client;
  }

  static isFor(client) {
    return typeof client?.callBuffer === "function" && typeof client.duplicate === "function";
  }

  /** Milliseconds, or undefined. */
  get replyTimeout() {
    const options = this.isCluster ? this.#client.options.redisOptions : this.#client.options;
    return options?.commandTimeout ?? options?.socketTimeout;
  }

  onClosed(closed) {
    this.#client.once("end", closed);
  }

  /** Of a cluster: the addresses of its masters. */
  async addresses() {
    await this.#discovered();
    return this.#client.nodes("master").map((node) => `${node.options.host}:${node.options.port}`);
  }

  /** A connection to this node of a cluster, or where the user's client connects to. It is not open yet. */
  async make(address) {
    if (!this.isCluster) return new IoredisConnection(this.#template.duplicate(ONCE));
    this.#template ??= (await this.#discovered())[0];
    const mapped = this.#mapped(address);
    const at = mapped.lastIndexOf(":");
    return new IoredisConnection(
      this.#template.duplicate({ ...ONCE, host: mapped.slice(0, at), port: Number(mapped.slice(at + 1)) }),
    );
  }

  #mapped(address) {
    const { natMap } = this.#client.options;
    const found = typeof natMap === "function" ? natMap(address) : natMap?.[address];
    return found ? `${found.host}:${found.port}` : address;
  }

  /** The masters that the user's client knows. It connects by itself. */
  async #discovered() {
    const cluster = this.#client;
    if (cluster.status === "wait") cluster.connect().catch(() => {});
    if (cluster.nodes("master").length === 0 && cluster.status !== "end") {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, DISCOVERY_MAX);
        cluster.once("ready", () => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
    const masters = cluster.nodes("master");
    if (masters.length === 0) throw new Error("the cluster client knows no node");
    return masters;
  }
}

/** How long the nodes of a cluster are waited for. Milliseconds. */
const DISCOVERY_MAX = 5_000;

class IoredisConnection {
  #redis;
  #failure = null;

  constructor(redis) {
    this.#redis = redis;
    redis.on("error", (error) => (this.#failure ??= error));
  }

  onEnd(ended) {
    this.#redis.once("end", () => ended(this.#failure ?? new Error("the connection has ended")));
  }

  async open() {
    try {
      await this.#redis.connect();
    } catch (error) {
      throw this.#failure ?? error;
    }
  }

  call(words, isBinary) {
    return isBinary ? this.#redis.callBuffer(...words) : this.#redis.call(...words);
  }

  async subscribe(pattern, onMessage) {
    this.#redis.on("pmessageBuffer", (_, channel, data) => onMessage(channel, data));
    await this.#redis.psubscribe(pattern);
  }

  destroy() {
    this.#redis.disconnect();
    // `disconnect` waits for the other side, which may be gone.
    this.#redis.stream?.destroy();
  }

  ref() {
    this.#redis.stream?.ref?.();
  }

  unref() {
    this.#redis.stream?.unref?.();
  }
}
