// Tests of a file that run beside each other have a namespace each.

const { createClient } = require("redis");

const seen = new Map();

async function takes(owner) {
  const { url } = redlatch;
  const client = await createClient({ url }).connect();
  try {
    const isTaken = await client.set("lock", owner, { condition: "NX" });
    await redlatch.clock.now();
    expect(isTaken).toBe("OK");
    expect(redlatch.url).toBe(url);
    seen.set(owner, url);
  } finally {
    client.destroy();
  }
}

describe("test.concurrent", () => {
  for (const owner of ["a", "b", "c"]) {
    test.concurrent(`takes the lock for ${owner}`, () => takes(owner));
  }
  test("goes beside a test that runs alone", () => takes("alone"));
});

test("has a namespace for each test", () => {
  expect(new Set(seen.values()).size).toBe(4);
});
