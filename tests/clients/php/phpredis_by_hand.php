<?php
// A lock by hand on phpredis, on one server or in cluster mode: SET NX PX, EVAL and EVALSHA.

declare(strict_types=1);

require __DIR__ . '/checks.php';

const RELEASE = <<<'LUA'
if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end
LUA;
const EXTEND = 'return redis.call("get", KEYS[1]) == ARGV[1] and redis.call("pexpire", KEYS[1], ARGV[2]) or 0';

function acquire(Redis|RedisCluster $redis, string $key, string $token, int $leaseMs): bool
{
    return $redis->set($key, $token, ['NX', 'PX' => $leaseMs]);
}

function acquire_patiently(Redis|RedisCluster $redis, string $key, string $token, int $leaseMs): void
{
    while (!acquire($redis, $key, $token, $leaseMs)) {
        usleep(5000);
    }
}

function release(Redis|RedisCluster $redis, string $key, string $token): bool
{
    return $redis->eval(RELEASE, [$key, $token], 1) === 1;
}

function extend(Redis|RedisCluster $redis, string $key, string $token, int $leaseMs): bool
{
    $reply = $redis->evalSha(sha1(EXTEND), [$key, $token, $leaseMs], 1);
    if ($reply === false && str_starts_with((string) $redis->getLastError(), 'NOSCRIPT')) {
        $redis->clearLastError();
        $reply = $redis->eval(EXTEND, [$key, $token, $leaseMs], 1);
    }
    return $reply === 1;
}
