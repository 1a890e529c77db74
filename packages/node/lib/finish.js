// What the test runners do with the namespace of a test that has ended.

/**
 * Warns of faults that never hit, shows what happened if the test has failed, and drops the namespace. A server that
 * cannot tell does not hide how the test ended.
 */
export async function finish(namespace, test, hasFailed, print) {
  try {
    for (const fault of await namespace.faults.list()) {
      if (fault.hits === 0) print("warn", `redlatch: fault ${fault.id} never hit in '${test}': ${fault.rule}`);
    }
    if (hasFailed) print("error", `redlatch timeline of '${test}'\n${await namespace.timeline()}`);
  } catch (error) {
    print("warn", `redlatch: the server does not tell what happened in '${test}': ${error.message}`);
  }
  await namespace.drop().catch((error) => print("warn", `redlatch: ${error.message}`));
}
