<?php
// A lock by hand on Predis, on one server or in cluster mode: SET NX PX, EVAL and EVALSHA.

declare(strict_types=1);

require __DIR__ . '/checks.php';
require 'Predis/autoload.php';

const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';
const EXTEND = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) end return 0';

function acquire(Predis\Client $redis, string $key, string $token, int $leaseMs): bool
{
    return $redis->set($key, $token, 'PX', $leaseMs, 'NX') !== null;
}

function acquire_patiently(Predis\Client $redis, string $key, string $token, int $leaseMs): void
{
    while (!acquire($redis, $key, $token, $leaseMs)) {
        usleep(5000);
    }
}

function release(Predis\Client $redis, string $key, string $token): bool
{
    return $redis->eval(RELEASE, 1, $key, $token) === 1;
}

function extend(Predis\Client $redis, string $key, string $token, int $leaseMs): bool
{
    try {
        return $redis->evalsha(sha1(EXTEND), 1, $key, $token, $leaseMs) === 1;
    } catch (Predis\Response\ServerException $error) {
        if ($error->getErrorType() !== 'NOSCRIPT') {
            throw $error;
        }
        return $redis->eval(EXTEND, 1, $key, $token, $leaseMs) === 1;
    }
}
