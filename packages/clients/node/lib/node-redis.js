// Connections of node-redis (`redis`, `@redis/client`): duplicates of the user's client that connect once.

/** How replies are read: `typeMapping` since version 5, by the first byte of a type; `returnBuffers` in version 4. */
const TEXTS = { typeMapping: {}, timeout: undefined };
const BYTES = { typeMapping: { 36: Buffer, 43: Buffer }, returnBuffers: true, timeout: undefined };

export class NodeRedisDriver {
  isCluster;
  prefix;
  #client;
  #isSentinel;
  #template = null;

  constructor(client) {
    this.#client = client;
    this.isCluster = typeof client.nodeClient === "function";
    this.#isSentinel = !this.isCluster && typeof client.getMasterNode === "function";
    this.prefix = client.options?.keyPrefix || client._keyPrefix || "";
  }

  static isFor(client) {
    if (typeof client?.sendCommand !== "function") return false;
    // The first Sentinels of version 5 have no `duplicate`, and need none here.
    return typeof client.duplicate === "function" || typeof client.getMasterNode === "function";
  }

  /** Milliseconds, or undefined. */
  get replyTimeout() {
    const { options, _options: ofCluster } = this.#client;
    return (options ?? ofCluster?.defaults)?.socket?.socketTimeout;
  }

  onClosed(closed) {
    this.#client.once?.("end", closed);
  }

  /** Of a cluster: the addresses of its masters. */
  async addresses() {
    this.#mustBeOpen();
    return this.#client.masters.map((node) => node.address ?? `${node.host}:${node.port}`);
  }

  /** A connection to this node of a cluster, or where the user's client connects to. It is not open yet. */
  async make(address) {
    const template = await this.#templateOf();
    const socket = template.options?.socket;
    const once = { reconnectStrategy: false, socketTimeout: undefined, ...(this.isCluster ? this.#mapped(address) : {}) };
    return new NodeRedisConnection(template.duplicate({ ...ONCE, socket: { ...socket, ...once } }));
  }

  async #templateOf() {
    // A Sentinel: the client of the master, as it is now. One that is not connected has the Sentinels asked again.
    if (this.#isSentinel) {
      this.#mustBeOpen();
      return this.#client._execute(false, async (master) => {
        if (!master.isReady) throw new Error("the master is not connected");
        return master;
      });
    }
    if (!this.isCluster) return this.#client;
    this.#mustBeOpen();
    return (this.#template ??= await this.#client.nodeClient(this.#client.masters[0]));
  }

  #mapped(address) {
    const map = this.#client._options?.nodeAddressMap;
    const found = typeof map === "function" ? map(address) : map?.[address];
    const at = address.lastIndexOf(":");
    return found ?? { host: address.slice(0, at), port: Number(address.slice(at + 1)) };
  }

  #mustBeOpen() {
    if (this.#client.isOpen === false) throw new Error("the client is not connected: call its connect()");
  }
}

/** What a duplicate has instead of the user's settings. What it sends is sent once, and fails when the connection ends. */
const ONCE = {
  url: undefined,
  disableOfflineQueue: false,
  commandsQueueMaxLength: undefined,
  pingInterval: undefined,
  legacyMode: false,
  isolationPoolOptions: undefined,
  // The prefix is put before keys here, so that it counts for all commands.
  keyPrefix: undefined,
  readonly: false,
  // In RESP2 all versions read a map as the same list.
  RESP: 2,
  clientSideCache: undefined,
  emitInvalidate: undefined,
  maintNotifications: "disabled",
  commandOptions: undefined,
};

class NodeRedisConnection {
  #client;
  #failure = null;
  #ended = null;
  /** A socket was asked for, and has not come yet. */
  #isConnecting = false;
  #isDestroyed = false;

  constructor(client) {
    this.#client = client;
    client.on("connect", () => this.#hasSocket());
    // It does not connect again: with its first error it has ended.
    client.on("error", (error) => {
      this.#failure ??= error;
      this.#ended?.(this.#failure);
    });
    client.on("end", () => this.#ended?.(this.#failure ?? new Error("the connection has ended")));
  }

  onEnd(ended) {
    this.#ended = ended;
  }

  async open() {
    this.#isConnecting = true;
    await this.#client.connect();
  }

  call(words, isBinary) {
    return this.#client.sendCommand(words, isBinary ? BYTES : TEXTS);
  }

  async subscribe(pattern, onMessage) {
    await this.#client.pSubscribe(pattern, (data, channel) => onMessage(channel, data), true);
  }

  destroy() {
    this.#isDestroyed = true;
    // Without a socket the library would end nothing, and keep the one that comes later.
    if (!this.#isConnecting) this.#end();
  }

  ref() {
    this.#client.ref();
  }

  unref() {
    this.#client.unref();
  }

  #hasSocket() {
    this.#isConnecting = false;
    // The library first queues what a connection begins with, which fails then.
    if (this.#isDestroyed) setImmediate(() => this.#end());
  }

  #end() {
    try {
      // Version 4 has no `destroy`, and `disconnect` of one that has ended fails.
      const ended = this.#client.destroy ? this.#client.destroy() : this.#client.disconnect();
      ended?.catch?.(() => {});
    } catch {
      // It has ended already.
    }
  }
}
