// Compiled, never run: every name as TypeScript sees it.
import { attach, CommandError, start } from "redlatch";
import type { Event, Fault, Finding, Namespace, NodeState } from "redlatch";
import RedlatchEnvironment from "redlatch/jest";
import { setup } from "redlatch/vitest";
import { test } from "redlatch/vitest/test";

test("types", async ({ redlatch }) => {
  const namespace: Namespace = redlatch;
  const now: number = await namespace.clock.advance(30_000);
  const next: number | null = await namespace.clock.next();
  await namespace.clock.auto(true, { idle: 20 });
  await namespace.clock.set(new Date(now));
  const fault: Fault = await namespace.faults.dropReply({ command: "SET", key: "lock:*", times: 1 });
  const hits: number = await fault.hits();
  const nodes: NodeState[] = await namespace.nodes.list();
  const events: Event[] = await namespace.history({ since: 1 });
  const findings: Finding[] = await namespace.check();
  const html: string = await namespace.timeline({ format: "html" });
  const leases: Array<number | undefined> = events.filter(({ kind }) => kind === "granted").map(({ lease }) => lease);
  // @ts-expect-error A kind that there is not.
  const grunted = events.filter(({ kind }) => kind === "grunted");
  // @ts-expect-error A condition that there is not.
  await namespace.faults.dropReply({ comand: "SET" });
  // @ts-expect-error A format that there is not.
  await namespace.timeline({ format: "pdf" });
  void [next, hits, nodes, leases, grunted, findings, html];
});

export async function use(): Promise<string> {
  await using server = await start({ nodes: 5, args: ["--max-lifetime", "30m"] });
  const same = attach(server.ready);
  try {
    await same.namespace("orders").nodes.crash(1, { keep: true });
  } catch (error) {
    if (error instanceof CommandError) return error.code;
  }
  return `${server.url} ${globalThis.redlatch.name} ${setup.name} ${RedlatchEnvironment.name}`;
}
