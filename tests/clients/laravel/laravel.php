<?php
// Laravel: the locks of its cache, and Redis' funnel and throttle, on Predis and on phpredis.

declare(strict_types=1);

require __DIR__ . '/checks.php';
require 'Predis/autoload.php';
require 'Illuminate/Redis/autoload.php';
require 'Illuminate/Cache/autoload.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Contracts\Redis\LimiterTimeoutException;
use Illuminate\Redis\RedisManager;

function manager(string $driver): RedisManager
{
    $server = ['host' => getenv('REDLATCH_HOST'), 'port' => (int) getenv('REDLATCH_PORT'), 'database' => 1];
    return new RedisManager(null, $driver, ['default' => $server, 'options' => ['prefix' => "$driver:"]]);
}

function store(string $driver): RedisStore
{
    return new RedisStore(manager($driver), 'cache');
}

function locks(string $driver): void
{
    $store = store($driver);
    $lock = $store->lock('stock', 10);
    $other = store($driver)->lock('stock', 10);
    check("$driver: acquire", $lock->get());
    check("$driver: contended acquire is refused", !$other->get());
    check("$driver: release by a non-owner is refused", !$other->release());
    check("$driver: it is given up by its time only", refused(LockTimeoutException::class, fn () => $other->block(1)));
    check("$driver: restored by its owner's name", $store->restoreLock('stock', $lock->owner())->release());
    check("$driver: a second release is refused", !$lock->release());
    check("$driver: a section", $other->get(fn () => !$lock->get()) && $lock->get());
    $other->forceRelease();
    check("$driver: released by force", $other->get() && !$lock->release() && $other->release());

    $forever = $store->lock('for ever');
    check("$driver: without a lease", $forever->get() && !$store->lock('for ever')->get() && $forever->release());

    $start = now_ms();
    check("$driver: a short lease", $store->lock('lease', 1)->get());
    check("$driver: the next waits for its end", $store->lock('lease', 10)->block(5));
    check("$driver: and not for less", now_ms() - $start >= 1000);
}

function limits(string $driver): void
{
    $redis = manager($driver)->connection();
    $inside = fn () => 'inside';
    $nested = $redis->funnel('pool')->limit(2)->releaseAfter(10)->then(
        fn () => $redis->funnel('pool')->limit(2)->releaseAfter(10)->then(
            fn () => refused(
                LimiterTimeoutException::class,
                fn () => $redis->funnel('pool')->limit(2)->releaseAfter(10)->block(0)->then($inside)
            )
        )
    );
    check("$driver: a funnel lets two in and no third", $nested);
    check("$driver: and others when they have left", $redis->funnel('pool')->limit(1)->block(0)->then($inside) === 'inside');
    $throttled = fn () => $redis->throttle('calls')->allow(2)->every(30)->block(0)->then($inside, fn () => 'refused');
    check("$driver: a throttle", [$throttled(), $throttled(), $throttled()] === ['inside', 'inside', 'refused']);
}

foreach (['predis', 'phpredis'] as $driver) {
    locks($driver);
    limits($driver);
    race(function () use ($driver) {
        $store = store($driver);
        return fn (callable $critical) => $store->lock('race', 10)->block(30, $critical);
    });
}
echo "done\n";
