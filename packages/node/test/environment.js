// The variables of this process without those of the Vitest that runs these tests: for another Vitest, or Jest.

export function plainEnvironment() {
  const env = { ...process.env, CI: "1", NO_COLOR: "1" };
  for (const name of Object.keys(env)) if (/^(VITEST|JEST|NODE_ENV|TEST$)/.test(name)) delete env[name];
  return env;
}
