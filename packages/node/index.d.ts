/** redlatch for tests. All times are in milliseconds; moments are Unix time in milliseconds. */

/** What a server says when it is ready. */
export interface Ready {
  pid: number;
  port: number;
  ports: number[];
  url: string;
  version: string;
}

export interface StartOptions {
  /** How many ports are opened, each a store of its own. Default: 1. */
  nodes?: number;
  /** Further flags of the program. */
  args?: string[];
  /** The path of the program. Default: `findBinary()`. */
  binary?: string;
}

/** Starts a server on free ports of this machine. Resolves once it accepts connections. */
export function start(options?: StartOptions): Promise<Server>;

/** A server that another process has started. `ready` is its `Server.ready`. It is not stopped from here. */
export function attach(ready: Ready, binary?: string): Server;

/** The path of the program: REDLATCH_BINARY, the package of this platform, or the search path. Throws if it is nowhere. */
export function findBinary(): string;

/** A command that the server refused. */
export class CommandError extends Error {
  /** The first word of the message. */
  readonly code: string;
}

export class Server implements AsyncDisposable {
  private constructor();
  readonly ready: Ready;
  /** The URL of the namespace `default`. */
  readonly url: string;
  readonly host: string;
  /** The port of the first node. */
  readonly port: number;
  /** The ports of all nodes. */
  readonly ports: number[];
  readonly pid: number;
  readonly version: string;
  readonly binary: string;
  /** A namespace of the server; without a name, a new one. It is made when the first client enters it. */
  namespace(name?: string): Namespace;
  namespaces(): Promise<NamespaceState[]>;
  /** Ends a namespace and disconnects its clients. False if there is none of that name. */
  drop(name: string): Promise<boolean>;
  /** Sends a command in the namespace `default`. */
  call(...words: Array<string | number>): Promise<unknown>;
  /** Ends the server. One that another process started is left as it is. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface NamespaceState {
  name: string;
  clients: number;
  keys: number;
  mode: ClockMode;
}

/** A server of its own inside of a server: keys, clients, channels, scripts, settings, clock, faults and history. */
export class Namespace implements AsyncDisposable {
  private constructor();
  readonly name: string;
  /** What clients are given: `redis://:namespace%3Aorders@127.0.0.1:40000`. */
  readonly url: string;
  /** The URLs of all nodes. */
  readonly urls: string[];
  readonly host: string;
  /** The port of the first node. */
  readonly port: number;
  /** The password that leads into the namespace. */
  readonly password: string;
  readonly clock: Clock;
  readonly faults: Faults;
  readonly nodes: Nodes;
  /** The slots of its cluster, if the server is one. */
  readonly slots: Slots;
  /** Sends a command to the first node that can be reached. */
  call(...words: Array<string | number>): Promise<unknown>;
  /** What happened, oldest first: requests, replies, expiries, grants, faults, clients. */
  history(filter?: HistoryFilter): Promise<Event[]>;
  /** How often each command was called. */
  calls(filter?: Pick<HistoryFilter, "key" | "command" | "client">): Promise<Record<string, number>>;
  /** What clients did wrong with locks. Empty if nothing. */
  check(): Promise<Finding[]>;
  /** A picture of what happened, a lane for each client. Default: `text`. */
  timeline(options?: { format?: "text" | "html" }): Promise<string>;
  /** Closes the connections of this object. The namespace stays. */
  close(): void;
  /** Ends the namespace and disconnects its clients. False if nobody has entered it. */
  drop(): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

export type ClockMode = "running" | "frozen" | "auto";

/** Something that falls due. */
export interface Deadline {
  at: number;
  in: number;
  what: string;
  key?: string;
  client?: number;
  node?: number;
}

export interface ClockState {
  mode: ClockMode;
  now: number;
  /** The monotonic clock. */
  lock: number;
  /** The next ten. */
  deadlines: Deadline[];
}

/** The clock of a namespace. Calls that move it resolve, with the time, after all that fell due has happened. */
export class Clock {
  private constructor();
  /** Time stands still. */
  freeze(): Promise<number>;
  /** Time passes as usual, from where it stands. */
  run(): Promise<number>;
  /** Time moves forward through every deadline in between, in order. */
  advance(ms: number): Promise<number>;
  /** Like `advance`, to a moment. An earlier one is refused. */
  set(moment: number | Date): Promise<number>;
  /** Like `advance`, to the next deadline. Null if nothing is due ever. */
  next(): Promise<number | null>;
  /** Time stands still, and goes to the next deadline whenever every client is blocked or silent for `idle` ms. */
  auto(on?: boolean, options?: { idle?: number }): Promise<void>;
  /** Steps the wall clock alone, as an administrator would. Leases do not change. */
  stepWall(ms: number): Promise<number>;
  show(): Promise<ClockState>;
  now(): Promise<number>;
}

/** Which requests a fault meets: those that match all of these. */
export interface Conditions {
  command?: string;
  /** A pattern. */
  key?: string;
  /** A SHA-1, or what a known script is for: `acquire`, `extend`, `release`. */
  script?: string;
  /** A pattern of names, libraries or addresses. */
  client?: string;
  node?: number;
  nth?: number;
  every?: number;
  probability?: number;
  /** Repeats what `probability` chose. Default: 1. */
  seed?: number;
  times?: number;
}

export interface FaultState {
  id: number;
  rule: string;
  /** Requests that matched the conditions. */
  met: number;
  /** How often it acted. */
  hits: number;
}

/** The faults of a namespace. */
export class Faults {
  private constructor();
  /** Adds a fault by the name of its action, as in `add(["DELAY", 100], { command: "SET" })`. */
  add(action: string | Array<string | number>, conditions?: Conditions): Promise<Fault>;
  /** Carried out; the connection is closed without the reply. */
  dropReply(conditions?: Conditions): Promise<Fault>;
  /** Not carried out; the connection is closed. */
  dropBefore(conditions?: Conditions): Promise<Fault>;
  /** Carried out; the connection is closed after half of the reply. */
  halfReply(conditions?: Conditions): Promise<Fault>;
  /** Not carried out; the connection is reset. */
  reset(conditions?: Conditions): Promise<Fault>;
  /** Carried out later. */
  delay(ms: number, conditions?: Conditions): Promise<Fault>;
  /** Carried out now, answered later. */
  stall(ms: number, conditions?: Conditions): Promise<Fault>;
  /** Not carried out; the error is the reply. */
  error(text: string, conditions?: Conditions): Promise<Fault>;
  /** Carried out and answered; then that client is neither read nor answered for so long. */
  pauseClient(ms: number, conditions?: Conditions): Promise<Fault>;
  /** Carried out; then the leases of its keys end. */
  expireKey(conditions?: Conditions): Promise<Fault>;
  /** Carried out twice; the second reply is the reply. */
  duplicate(conditions?: Conditions): Promise<Fault>;
  list(): Promise<FaultState[]>;
  /** False if it is gone already. */
  remove(id: number): Promise<boolean>;
  /** Removes all faults; resolves to how many there were. */
  clear(): Promise<number>;
}

export class Fault {
  private constructor();
  readonly id: number;
  /** How often it acted. */
  hits(): Promise<number>;
  /** How many requests matched its conditions. */
  met(): Promise<number>;
  /** False if it is gone already. */
  remove(): Promise<boolean>;
}

export interface NodeState {
  node: number;
  port: number;
  state: "up" | "paused" | "crashed";
  skew: number;
  partitions: string[];
  clients: number;
  keys: number;
}

/** The nodes of a namespace, numbered from 1. */
export class Nodes {
  private constructor();
  list(): Promise<NodeState[]>;
  /** Its connections are reset, new ones too, until `start`. Its keys are gone unless they are to be kept. */
  crash(node: number, options?: { keep?: boolean }): Promise<void>;
  /** It answers again. */
  start(node: number): Promise<void>;
  /** Its connections stay open; nothing is read or answered until `resume`. */
  pause(node: number): Promise<void>;
  resume(node: number): Promise<void>;
  /** Its clock is this much ahead of the others. One that is set back stands still until the others have caught up. */
  skew(node: number, ms: number): Promise<void>;
  /** Clients whose name, library or address matches the pattern get no answers from it, until `heal`. Default: all. */
  partition(node: number, options?: { client?: string }): Promise<void>;
  /** It and the other nodes of its cluster do not hear each other, until `heal`. Clients reach it. */
  isolate(node: number): Promise<void>;
  heal(node: number): Promise<void>;
  /** Whether what it writes reaches its replicas. If not, it is acknowledged all the same, and a crash loses it. */
  replication(node: number, on: boolean): Promise<void>;
}

/** The slots of a cluster, in a namespace. */
export class Slots {
  private constructor();
  /** Moves a slot to a node. With `steps`, so many keys move, and it stays half-way. Returns how many keys have moved. */
  move(slot: number, node: number, options?: { steps?: number }): Promise<number>;
  /** The node tells of the slots as they are now, whatever changes, until `thaw`. */
  freeze(node: number): Promise<void>;
  thaw(node: number): Promise<void>;
}

export interface HistoryFilter {
  /** The number of an event: later ones only. */
  since?: number;
  /** A pattern. */
  key?: string;
  command?: string;
  /** A pattern of names, libraries or addresses. */
  client?: string;
  count?: number;
}

export type EventKind =
  | "connect"
  | "disconnect"
  | "request"
  | "reply"
  | "granted"
  | "renewed"
  | "released"
  | "expired"
  | "refused"
  | "waits"
  | "missed"
  | "fault"
  | "failover";

/** Something that happened. `at` is the namespace's clock; `real` the machine's, in microseconds. */
export interface Event {
  id: number;
  kind: EventKind;
  at: number;
  real: number;
  node: number;
  client?: number;
  name?: string;
  library?: string;
  /** The id of the request that it belongs to. */
  request?: number;
  command?: string;
  args?: string[];
  key?: string;
  reply?: string;
  token?: number;
  holder?: string;
  /** Milliseconds. */
  lease?: number;
  fault?: number;
  text?: string;
}

/** Something that is wrong: the rule that is broken, and the events that show it. */
export interface Finding {
  rule: string;
  key: string;
  text: string;
  events: number[];
  lines: string[];
}
