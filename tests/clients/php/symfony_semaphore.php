<?php
// Symfony's Semaphore on phpredis, as Debian ships both: two sorted sets, which its scripts keep alike by ZINTERSTORE.

declare(strict_types=1);

require __DIR__ . '/checks.php';
require 'Symfony/Component/Semaphore/autoload.php';

use Symfony\Component\Semaphore\Exception\SemaphoreExpiredException;
use Symfony\Component\Semaphore\Key;
use Symfony\Component\Semaphore\Semaphore;
use Symfony\Component\Semaphore\SemaphoreFactory;
use Symfony\Component\Semaphore\Store\RedisStore;

$first = new SemaphoreFactory(new RedisStore(connect()));
$second = new SemaphoreFactory(new RedisStore(connect()));
$redis = connect();

$one = $first->createSemaphore('seats', 2, 1, 30.0);
$two = $second->createSemaphore('seats', 2, 1, 30.0);
$three = $second->createSemaphore('seats', 2, 1, 30.0);
check('acquire', $one->acquire() && $one->isAcquired());
check('acquire up to the limit', $two->acquire() && $two->isAcquired());
check('beyond the limit it is refused', !$three->acquire() && !$three->isAcquired());
check('its weights are a sorted set', $redis->zCard('{seats}:weight') === 2, $redis->zCard('{seats}:weight'));
check('so are its times', $redis->zCard('{seats}:time') === 2, $redis->zCard('{seats}:time'));
check('to acquire again changes nothing', $one->acquire() && $redis->zCard('{seats}:weight') === 2);
$one->refresh(60.0);
$left = $redis->ttl('{seats}:weight');
check('extend takes the lease anew', $left > 67 && $left <= 70, $left);
check('extend by a non-owner is refused', refused(SemaphoreExpiredException::class, fn () => $three->refresh()));
check('which leaves no trace', $redis->zCard('{seats}:time') === 2 && $redis->zCard('{seats}:weight') === 2);
$three->release();
check('release by a non-owner does nothing', $one->isAcquired() && $two->isAcquired());
$one->release();
check('a release makes room', $three->acquire() && !$one->isAcquired());
check('the key may be carried to another process',
    (new Semaphore(unserialize(serialize($key = new Key('carried', 1))), new RedisStore(connect())))->acquire());
$two->release();
$three->release();
check('all are released', $redis->exists('{seats}:weight', '{seats}:time') === 0);

$heavy = $first->createSemaphore('load', 5, 3, 30.0);
$light = $second->createSemaphore('load', 5, 2, 30.0);
$more = $second->createSemaphore('load', 5, 1, 30.0);
check('weights add up', $heavy->acquire() && $light->acquire() && !$more->acquire());
$light->release();
check('a weight is given back', $more->acquire() && !$light->acquire());
$heavy->release();
$more->release();

// The times are whole seconds of the client's clock.
$lapsed = $first->createSemaphore('lease', 1, 1, 1.0, false);
$heir = $second->createSemaphore('lease', 1, 1, 30.0);
$before = time();
check('acquire a short lease', $lapsed->acquire());
while (!$heir->acquire()) {
    usleep(20_000);
}
check('expiry hands over', !$lapsed->isAcquired() && $redis->zCard('{lease}:weight') === 1);
check('not before the lease ended', time() - $before >= 1, time() - $before);
check('the lapsed holder cannot extend', refused(SemaphoreExpiredException::class, fn () => $lapsed->refresh()));
$lapsed->release();
check('and cannot release', $heir->isAcquired());
$heir->release();

race(function (int $number) {
    $factory = new SemaphoreFactory(new RedisStore(connect()));
    return function (callable $critical) use ($factory) {
        $semaphore = $factory->createSemaphore('race', 1, 1, 30.0);
        while (!$semaphore->acquire()) {
            usleep(5000);
        }
        $critical();
        $semaphore->release();
    };
});
echo "done\n";
