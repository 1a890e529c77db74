// A service that ships two orders, each under a lock. Without an argument it is right; else it has that bug.
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { Redis } from 'ioredis'

const LEASE_MS = 30_000
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
const EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
const BUG = process.argv[2]

let client = connect()

// A request whose connection ends fails, and is not sent again.
function connect() {
  const client = new Redis(process.env.REDIS_URL, { retryStrategy: null, enableReadyCheck: false })
  client.on('error', () => {})
  return client
}

async function take(key, owner) {
  try {
    if (!await client.set(key, owner, 'PX', LEASE_MS, 'NX')) throw new Error('somebody else ships it')
  } catch (error) {
    // It may have been granted.
    if (BUG !== 'forgets') await giveBack(key, owner)
    throw error
  }
}

// Asks until a server answers: it may be about to restart.
async function giveBack(key, owner) {
  for (let attempt = 0; attempt < 1000; attempt++) {
    try {
      return await client.eval(RELEASE, 1, key, owner)
    } catch {
      client.disconnect()
      client = connect()
      await pause(5)
    }
  }
  throw new Error('the server stays away')
}

async function release(key, owner) {
  if (BUG === 'deletes') return client.del(key)
  if (BUG === 'looks') return await client.get(key) === owner && client.del(key)
  return client.eval(RELEASE, 1, key, owner)
}

async function seconds() {
  return Number((await client.time())[0])
}

async function ship(order) {
  const [key, owner] = [`lock:order:${order}`, randomUUID()]
  const looks = BUG !== 'ignores'
  await take(key, owner)
  try {
    const end = await seconds() + LEASE_MS / 1000
    await client.incr('shipped')
    const extended = await client.eval(EXTEND, 1, key, owner, LEASE_MS)
    if (BUG === 'wall-clock' && await seconds() > end || !extended && looks) throw new Error('the lock was lost')
  } catch (error) {
    await giveBack(key, owner)
    throw error
  }
  if (!await release(key, owner) && looks) throw new Error('the lock was lost')
}

try {
  for (const order of [1, 2]) await ship(order)
} finally {
  client.disconnect()
}
