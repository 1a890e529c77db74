// Every scenario of `../../conformance.json`, with every client library, on every server and connection that it names.

import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { attach, start } from "redlatch";
import { Locks } from "redlatch-client";
import { Runner, SCENARIOS } from "./conformance.js";
import { LIBRARIES } from "./libraries.js";
import { Nodes, PROGRAMS, Peers, Sentinel, beside, freePorts, hasNodes, mustHave, plain, withJournal } from "./servers.js";

const SCENARIO_MS_MAX = 120_000;

const on = (server) => SCENARIOS.filter((each) => each.servers.includes(server));
const by = (connection, server) => on(server).filter((each) => each.connections?.includes(connection));
const libraries = (of = () => true) => Object.entries(LIBRARIES).filter(([, library]) => of(library));

/** Runs a scenario: `open(library, timeout)` makes the client under test. */
async function run(library, scenario, open, ask, restart) {
  const limit = scenario.client?.reply_timeout;
  const client = await open(limit === undefined ? undefined : limit * 1000);
  const budget = scenario.client?.budget;
  const locks = new Locks(client, budget === undefined ? {} : { budget: budget * 1000 });
  try {
    await new Runner(locks, ask, restart).run(scenario.steps);
  } finally {
    await locks.close();
    await library.close(client);
  }
}

/** A namespace for the time of some work. */
async function within(namespace, work) {
  try {
    await work(namespace);
  } finally {
    await namespace.drop();
  }
}

/** Has a server of its own for some work, and what asks it beside the client. */
async function running(starting, work) {
  const server = await starting;
  const asker = await beside({ socket: { path: server.socket } });
  try {
    await work(server, (...words) => asker.sendCommand(words));
  } finally {
    asker.destroy();
    await server.stop();
  }
}

function scenarios(named, work) {
  for (const scenario of named) {
    test(`${scenario.name}: ${scenario.holds}`, { timeout: SCENARIO_MS_MAX }, () => work(scenario));
  }
}

test("each scenario is run somewhere", () => {
  const known = ["hostile", "plain", "redlatch", "redlatch-cluster", "redlatch-replicated", "redlatch-with-journal"];
  expect(new Set(SCENARIOS.map((each) => each.name)).size).toBe(SCENARIOS.length);
  expect(SCENARIOS.length).toBeGreaterThanOrEqual(40);
  for (const each of SCENARIOS) {
    expect(each.steps.length).toBeGreaterThan(0);
    expect(each.servers.every((server) => known.includes(server))).toBe(true);
    expect((each.connections ?? []).every((way) => ["single", "cluster", "sentinel"].includes(way))).toBe(true);
  }
});

describe.concurrent.each(libraries())("redlatch by %s", (_, library) => {
  scenarios(on("redlatch"), async (scenario) => {
    const { binary, ...ready } = inject("redlatch");
    await within(attach(ready, binary).namespace(), async (namespace) => {
      const { host, port, password } = namespace;
      const open = (timeout) => library.single({ host, port, password, timeout });
      await run(library, scenario, open, namespace.call.bind(namespace));
    });
  });
});

describe.concurrent.each(libraries())("a server that serves nobody, by %s", (_, library) => {
  let peers;
  beforeAll(async () => (peers = await new Peers().start(inject("redlatch").port)));
  afterAll(() => peers.stop());
  for (const name of new Set(on("hostile").flatMap((each) => each.peers))) {
    describe(name, () => {
      scenarios(
        on("hostile").filter((each) => each.peers.includes(name)),
        (scenario) => run(library, scenario, () => library.apart({ host: "127.0.0.1", port: peers.ports[name] })),
      );
    });
  }
});

describe.concurrent.each(libraries())("a cluster by %s", (_, library) => {
  let server;
  beforeAll(async () => (server = await start({ nodes: 3, args: ["--cluster-enabled", "yes"] })));
  afterAll(() => server.stop());
  scenarios(by("cluster", "redlatch"), async (scenario) => {
    await within(server.namespace(), async (namespace) => {
      const { host, password } = namespace;
      const asker = await beside({ socket: { host, port: await masterOfK(namespace) }, password });
      const open = (timeout) => library.cluster({ host, ports: server.ports, password, timeout });
      await run(library, scenario, open, (...words) => asker.sendCommand(words)).finally(() => asker.destroy());
    });
  });
});

describe.concurrent.each(libraries())("a cluster whose masters crash, by %s", (_, library) => {
  let server;
  beforeAll(async () => (server = await start({ nodes: 6, args: ["--cluster-enabled", "yes", "--cluster-replicas", "1"] })));
  afterAll(() => server.stop());
  scenarios(on("redlatch-cluster"), async (scenario) => {
    await within(server.namespace(), async (namespace) => {
      const { host, password } = namespace;
      const open = (timeout) => library.cluster({ host, ports: server.ports, password, timeout });
      const ask = async (...words) => {
        const asker = await beside({ socket: { host, port: await masterOfK(namespace) }, password });
        return asker.sendCommand(words).finally(() => asker.destroy());
      };
      await run(library, scenario, open, ask, async () => {
        await namespace.nodes.crash(server.ports.indexOf(await masterOfK(namespace)) + 1);
        await namespace.clock.advance(CLUSTER_NODE_TIMEOUT_MS + 1);
      });
    });
  });
});

/** The port of the master of the key `k`, which all scenarios of clusters use. */
async function masterOfK(namespace) {
  const slots = await namespace.call("CLUSTER", "SLOTS");
  return slots.find(([first, last]) => first <= SLOT_OF_K && SLOT_OF_K <= last)[2][1];
}

const SLOT_OF_K = 7629;
/** The default of `cluster-node-timeout`. */
const CLUSTER_NODE_TIMEOUT_MS = 15_000;

for (const product of ["redis", "valkey"]) {
  mustHave(product, "REDLATCH_REQUIRE_CLIENTS");
  describe.concurrent.each(libraries())(`${product} by %s`, { skip: !PROGRAMS[product] }, (_, library) => {
    scenarios(on("plain"), (scenario) => {
      return running(plain(PROGRAMS[product]), async (server, ask) => {
        await run(library, scenario, (timeout) => library.single({ path: server.socket, timeout }), ask);
      });
    });
  });
}

describe.concurrent.each(libraries())("a server that is killed and started again, by %s", (_, library) => {
  scenarios(on("redlatch-with-journal"), (scenario) => {
    return running(withJournal(), async (server, ask) => {
      const open = (timeout) => library.single({ path: server.socket, timeout });
      await run(library, scenario, open, ask, () => server.restart());
    });
  });
});

const withSentinels = libraries((library) => library.sentinel);

describe.concurrent.each(withSentinels)("a Sentinel of Redis by %s", { skip: !PROGRAMS.redis }, (_, library) => {
  scenarios(by("sentinel", "plain"), async (scenario) => {
    const [port] = await freePorts(1);
    await running(plain(PROGRAMS.redis, port), async (_, ask) => {
      const sentinel = await new Sentinel().start(port);
      const open = (timeout) => library.sentinel({ ports: [sentinel.port], name: "locks", timeout });
      await run(library, scenario, open, ask).finally(() => sentinel.stop());
    });
  });
});

mustHave("etcd", "REDLATCH_REQUIRE_CLIENTS");
describe.each(withSentinels)("nodes by %s", { skip: !hasNodes() }, (_, library) => {
  let nodes;
  beforeAll(async () => (nodes = await new Nodes().start()), SCENARIO_MS_MAX);
  afterAll(() => nodes.stop());
  scenarios([...by("sentinel", "redlatch"), ...on("redlatch-replicated")], async (scenario) => {
    const ask = async (...words) => nodes.ask(await nodes.leader(), ...words);
    await ask("FLUSHALL");
    const open = (timeout) => library.sentinel({ ports: nodes.ports, name: "mymaster", timeout });
    await run(library, scenario, open, ask, () => nodes.killLeader());
  });
});
