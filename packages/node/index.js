// redlatch for tests: `start()` a server, take a `namespace()` for each test, move its clock, break what it answers.

export { findBinary } from "./lib/binary.js";
export { CommandError } from "./lib/connection.js";
export { Clock, Fault, Faults, Namespace, Nodes, Slots } from "./lib/namespace.js";
export { Server, attach, start } from "./lib/server.js";
