<?php
// Symfony's Lock on phpredis, as Debian ships both: exclusive and shared locks, each in a sorted set.

declare(strict_types=1);

require __DIR__ . '/checks.php';
require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\CombinedStore;
use Symfony\Component\Lock\Store\RedisStore;
use Symfony\Component\Lock\Strategy\ConsensusStrategy;

$first = new LockFactory(new RedisStore(connect()));
$second = new LockFactory(new RedisStore(connect()));
$redis = connect();

$mine = $first->createLock('stock', 30.0);
$theirs = $second->createLock('stock', 30.0);
check('acquire', $mine->acquire() && $mine->isAcquired());
check('it is a sorted set', $redis->type('stock') === Redis::REDIS_ZSET, $redis->type('stock'));
check('contended acquire is refused', !$theirs->acquire());
$theirs->release();
check('release by a non-owner does nothing', $mine->isAcquired() && !$theirs->isAcquired());
check('extend by a non-owner is refused', refused(LockConflictedException::class, fn () => $theirs->refresh()));
$mine->refresh(60.0);
$left = $redis->pttl('stock');
check('extend takes the lease anew', $left > 59_000 && $left <= 60_000, $left);
check('the key may be carried to another process',
    (new Lock(unserialize(serialize($key = new Key('carried'))), new RedisStore(connect())))->acquire());

$child = child(function () use ($mine) {
    usleep(200_000);
    // The token travels with the lock; the connection must not.
    $key = (fn () => $this->key)->call($mine);
    (new RedisStore(connect()))->delete($key);
});
$start = now_ms();
check('contended acquire waits', $theirs->acquire(true) && now_ms() - $start >= 150);
check('for the release', ended($child) && !$mine->isAcquired());
$theirs->release();
check('release', !$theirs->isAcquired() && $redis->exists('stock') === 0);

[$reader, $another, $writer] = array_map(
    fn (LockFactory $factory) => $factory->createLock('shared', 30.0), [$first, $second, $second]);
check('a reader is let in', $reader->acquireRead());
check('and another one', $another->acquireRead());
check('a writer is not', !$writer->acquire());
check('a reader among others cannot write', !$another->acquire());
$reader->release();
check('the last reader may become the writer', $another->acquire());
check('which keeps readers out', !$reader->acquireRead());
check('a writer may become a reader', $another->acquireRead() && $reader->acquireRead());
$another->release();
$reader->release();
check('when all have gone a writer is let in', $writer->acquire());
$writer->release();

$start = now_ms();
$lapsed = $first->createLock('lease', LEASE_MS / 1000, false);
$heir = $second->createLock('lease', 30.0);
check('acquire a short lease', $lapsed->acquire());
check('expiry hands over', $heir->acquire(true));
check('not before the lease ended', now_ms() - $start >= LEASE_MS - 1, now_ms() - $start);
check('the lapsed holder has nothing', !$lapsed->isAcquired() && $lapsed->isExpired());
$lapsed->release();
check('and cannot release', $heir->isAcquired());
$heir->release();

// Three servers, of which two are enough.
check('three servers', count(ports()) === 3);
$combine = function () {
    $stores = array_map(fn (int $port) => new RedisStore(connect($port)), ports());
    return new LockFactory(new CombinedStore($stores, new ConsensusStrategy()));
};
$whole = $combine()->createLock('combined', 30.0);
$rival = $combine()->createLock('combined', 30.0);
check('a lock on several servers', $whole->acquire() && connect(ports()[2])->exists('combined') === 1);
check('a rival is refused', !$rival->acquire());
connect(ports()[2])->del('combined');
check('two of three are enough', $whole->isAcquired() && !$rival->acquire());
$whole->release();
check('release on several servers', $rival->acquire());
$rival->release();

race(function (int $number) {
    $factory = new LockFactory(new RedisStore(connect()));
    return function (callable $critical) use ($factory) {
        $lock = $factory->createLock('race', 30.0);
        while (!$lock->acquire()) {
            usleep(5000);
        }
        $critical();
        $lock->release();
    };
});
echo "done\n";
