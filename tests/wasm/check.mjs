// Tries the engine in WebAssembly: node check.mjs MODULE, which wasm-bindgen has made.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const { Server } = createRequire(import.meta.url)(resolve(process.argv[2]));
const server = new Server();
const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';

function ask(...words) {
  const request = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join("");
  return Buffer.from(server.ask(Buffer.from(`*${words.length}\r\n${request}`))).toString();
}

assert.equal(ask("SET", "orders", "me", "NX", "PX", "1000"), "+OK\r\n");
assert.equal(ask("SET", "orders", "you", "NX", "PX", "1000"), "$-1\r\n");
assert.equal(ask("EVAL", RELEASE, "1", "orders", "you"), ":0\r\n");
assert.equal(ask("EVAL", RELEASE, "1", "orders", "me"), ":1\r\n");

assert.equal(ask("SET", "orders", "you", "NX", "PX", "1000"), "+OK\r\n");
server.advance(999);
assert.equal(ask("PTTL", "orders"), ":1\r\n");
server.advance(2);
assert.equal(ask("GET", "orders"), "$-1\r\n");

const first = ask("LOCK.ACQUIRE", "orders", "me", "LEASE", "1000");
assert.match(first, /^\*/, first);
assert.match(ask("LOCK.RELEASE", "orders", "me"), /^:1/);
console.log("the engine answers in WebAssembly");
