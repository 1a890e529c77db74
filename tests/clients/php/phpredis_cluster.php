<?php
// phpredis in cluster mode: `RedisCluster` with a lock by hand, as on one server.

declare(strict_types=1);

require __DIR__ . '/phpredis_by_hand.php';

function cluster(): RedisCluster
{
    return new RedisCluster(null, [getenv('REDLATCH_HOST') . ':' . getenv('REDLATCH_PORT')]);
}

$first = cluster();
$second = cluster();
$masters = $first->_masters();
$ports = array_column($masters, 1);
sort($ports);
check('the nodes are those that share the slots', $ports === ports(), $masters);
foreach (['stock', '{user:7}:cart', 'a{}b', "{\u{fc}}"] as $key) {
    check("acquire $key", acquire($first, $key, 'first', 10_000) && $first->get($key) === 'first');
    check('contended acquire is refused', !acquire($second, $key, 'second', 10_000));
    check('release by a non-owner is refused', !release($second, $key, 'second'));
    check('extend', extend($first, $key, 'first', 20_000) && $first->pttl($key) > 19_000);
    check('release', release($first, $key, 'first') && !$first->exists($key));
}

$start = now_ms();
acquire($first, 'lease', 'lapsed', LEASE_MS);
acquire_patiently($second, 'lease', 'heir', 10_000);
check('expiry hands over, not before the lease ended', now_ms() - $start >= LEASE_MS, now_ms() - $start);
check('the lapsed holder cannot release', !release($first, 'lease', 'lapsed'));

$first->multi();
$first->set('{p}lock', 'me', ['NX', 'PX' => 10_000]);
$first->incr('{p}fence');
check('a transaction', $first->exec() === [true, 1]);
check('keys of several slots are split', $first->mset(['a' => '1', 'b' => '2']) && $first->mget(['a', 'b']) === ['1', '2']);

race(function (int $number) {
    $redis = cluster();
    return function (callable $critical) use ($redis, $number) {
        acquire_patiently($redis, 'race', "worker $number", 10_000);
        $critical();
        release($redis, 'race', "worker $number");
    };
});
echo "done\n";
