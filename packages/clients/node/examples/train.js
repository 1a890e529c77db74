// Trains on the first of several GPUs that is free. A tenant has at most two jobs at a time, all tenants together 100.

const GPUS = ["gpu:0", "gpu:1", "gpu:2"];

/** `work(gpu, signal)` ends when the signal is aborted. */
export async function train(locks, tenant, work) {
  const modes = { [`tenant:${tenant}`]: [1, 2], total: [1, 100] };
  const limits = locks.all(Object.keys(modes), { modes, wait: 60_000 });
  const gpu = locks.anyOf(GPUS, { wait: 60_000 });
  return limits.using((below) => gpu.using((held) => work(held.key, AbortSignal.any([below.lost, held.lost]))));
}
