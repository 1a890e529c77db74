// Writes under a lock into a database that refuses the write of a holder that was paused beyond its lease.

/** `client`: a Client of pg, or one that a Pool has given. */
export async function closeOrder(locks, client, order) {
  await locks.lock(`lock:order:${order}`, { wait: 5_000 }).using(async (held) => {
    await client.query("BEGIN");
    try {
      await held.fenced(client, "orders");
      await client.query("UPDATE orders SET state = 'closed' WHERE id = $1", [order]);
      await client.query("COMMIT");
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    }
  });
}
