// Two agents on the official SDK for TypeScript: they exclude each other.
//
//   agents.js PROGRAM URL
import { execFileSync } from "node:child_process";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { CallToolResultSchema, LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [PROGRAM, URL] = process.argv.slice(2);
const KEY = "typescript";

function check(name, truth, detail) {
  if (!truth) {
    console.error(`FAILED ${name}: ${JSON.stringify(detail)}`);
    process.exit(1);
  }
  console.log(`ok ${name}`);
}

/** A promise that `told` settles. */
function later() {
  let told;
  const value = new Promise((resolve) => {
    told = resolve;
  });
  return { value, told };
}

/** An agent, and what its host is told. */
class Agent {
  constructor(name) {
    this.client = new Client({ name, version: "1" });
    this.messages = { "lock-contended": later(), "lock-lost": later() };
    this.client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => this.messages[params.data.event].told(params));
  }

  async connect() {
    await this.client.connect(new StdioClientTransport({ command: PROGRAM, args: ["mcp", "--url", URL] }));
  }

  /** The text and the JSON of the answer, which the SDK has compared with the schema. */
  async call(tool, args, options) {
    const result = await this.client.callTool({ name: tool, arguments: args }, CallToolResultSchema, options);
    return { text: result.content[0].text, value: result.structuredContent, isError: result.isError };
  }

  /** A call that waits for the lock, and stands in its queue. */
  async waits(options) {
    const shown = later();
    const answer = this.call("take", { key: KEY, wait: "5m" }, { ...options, onprogress: ({ message }) => shown.told(message) });
    answer.catch(() => {});
    const message = await shown.value;
    check("the host is shown the place", message.startsWith(`waiting for ${KEY}, at place 1 of its queue`), message);
    return { answer };
  }
}

const [one, other] = [new Agent("one"), new Agent("other")];
await Promise.all([one.connect(), other.connect()]);
// With this list the SDK has the schemas.
const names = (await one.client.listTools()).tools.map(({ name }) => name);
check("tools", names.join() === "take,renew,release,list,who,wait,explain", names);
await other.client.listTools();

const taken = await one.call("take", { key: KEY, why: "a new index", lease: "5m" });
check("take", taken.value.taken && !taken.isError && taken.value.owner.startsWith("one-"), taken);
const refused = await other.call("take", { key: KEY });
check("refusal", refused.isError && !refused.value.taken && refused.text.includes("reason: a new index"), refused);
check("explain", (await one.call("explain", { key: KEY })).value.sentences.length > 0);
check("list", (await one.call("list", { mine: true })).value.locks[0].key === KEY);

const abort = new AbortController();
const given = await other.waits({ signal: abort.signal });
const contended = await one.messages["lock-contended"].value;
check("contended", contended.level === "notice" && contended.data.key === KEY, contended);
abort.abort("the user has pressed a key");
await given.answer.catch(() => {});
while ((await one.call("who", { key: KEY })).value.queue.length > 0);
check("a cancelled call leaves the queue", true);

const waits = await other.waits();
const renewed = await one.call("renew", { key: KEY });
check("renew", renewed.value.token === taken.value.token, renewed);
check("release", !(await one.call("release", { key: KEY, token: taken.value.token })).isError);
const got = await waits.answer;
check("the next one has a higher token", got.value.token > taken.value.token, got);

execFileSync(PROGRAM, ["break", KEY, "--token", String(got.value.token), "--url", URL]);
const told = await other.messages["lock-lost"].value;
check("lost", told.level === "warning" && told.data.token === got.value.token, told);
const lost = await other.call("renew", { key: KEY });
check("a lock that is lost is not renewed", lost.isError && !lost.value.renewed && lost.value.notices.length > 0, lost);
const bad = await other.call("take", { key: KEY, lease: "-5s" });
check("bad arguments", bad.isError && bad.text.includes("lease: must be a time"), bad);
check("wait", (await other.call("wait", { key: KEY })).value.free);

await Promise.all([one.client.close(), other.client.close()]);
console.log("done");
