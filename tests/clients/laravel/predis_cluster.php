<?php
// Predis in cluster mode (`'cluster' => 'redis'`), with a lock by hand, as on one server.

declare(strict_types=1);

require __DIR__ . '/predis_by_hand.php';

function cluster(): Predis\Client
{
    $nodes = ['tcp://' . getenv('REDLATCH_HOST') . ':' . getenv('REDLATCH_PORT')];
    return new Predis\Client($nodes, ['cluster' => 'redis']);
}

$first = cluster();
$second = cluster();
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
check('expiry hands over, not before the lease ended', now_ms() - $start >= LEASE_MS);
check('the lapsed holder cannot release', !release($first, 'lease', 'lapsed'));
check('the heir still holds it', release($second, 'lease', 'heir'));
check('keys of several slots are refused', refused(Predis\NotSupportedException::class, fn () => $first->mget(['a', 'b'])));
check('and those of one are not', $first->mget(['{p}a', '{p}b']) === [null, null]);

race(function (int $number) {
    $redis = cluster();
    return function (callable $critical) use ($redis, $number) {
        acquire_patiently($redis, 'race', "worker $number", 10_000);
        $critical();
        check('a holder releases', release($redis, 'race', "worker $number"));
    };
});
echo "done\n";
