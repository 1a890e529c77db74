<?php
// phpredis: a lock by hand, as its users and Laravel's write one: SET NX PX or EX, EVAL and EVALSHA, WATCH and MULTI.

declare(strict_types=1);

require __DIR__ . '/phpredis_by_hand.php';

$first = connect();
$second = connect();
check('connected', $first->ping('hello') === 'hello' && $second->ping() === true);
check('acquire', acquire($first, 'stock', 'first', 10_000) && $first->get('stock') === 'first');
check('contended acquire is refused', !acquire($second, 'stock', 'second', 10_000));
check('release by a non-owner is refused', !release($second, 'stock', 'second'));
check('extend by a non-owner is refused', !extend($second, 'stock', 'second', 60_000));
check('the owner still holds it', $first->get('stock') === 'first' && $first->pttl('stock') <= 10_000);
check('extend', extend($first, 'stock', 'first', 20_000));
$left = $first->pttl('stock');
check('extend takes the lease anew', $left > 19_000 && $left <= 20_000, $left);

$child = child(function () {
    usleep(100_000);
    release(connect(), 'stock', 'first');
});
$start = now_ms();
acquire_patiently($second, 'stock', 'second', 10_000);
check('contended acquire waits for the release', now_ms() - $start >= 50 && $first->get('stock') === 'second');
check('the child ends', ended($child));
check('a second release is refused', !release($first, 'stock', 'first'));

$first->watch('stock');
check('a transaction', $first->multi()->del('stock')->set('stock', 'again', ['NX'])->exec() === [1, true]);
$first->watch('stock');
$second->set('stock', 'robbed');
check('that notices a robber', $first->multi()->del('stock')->exec() === false);
check('and does nothing then', $first->get('stock') === 'robbed');
check('a pipeline', $first->multi(Redis::PIPELINE)->del('stock')->incr('stock')->exec() === [1, 1]);

// Laravel's lock: whole seconds, and none at all for one that lasts.
check('a lease in seconds', $first->set('laravel', 'owner', ['EX' => 20, 'NX']) && $first->ttl('laravel') > 18);
check('is refused to others', !$second->setnx('laravel', 'other'));
check('released by its owner', release($first, 'laravel', 'owner') && $second->setnx('laravel', 'other'));
check('and by force', $first->del('laravel') === 1);

$start = now_ms();
acquire($first, 'lease', 'lapsed', LEASE_MS);
acquire_patiently($second, 'lease', 'heir', 10_000);
check('expiry hands over, not before the lease ended', now_ms() - $start >= LEASE_MS, now_ms() - $start);
check('the lapsed holder cannot release', !release($first, 'lease', 'lapsed'));
check('the heir still holds it', $second->get('lease') === 'heir');

race(function (int $number) {
    $redis = connect();
    return function (callable $critical) use ($redis, $number) {
        acquire_patiently($redis, 'race', "worker $number", 10_000);
        $critical();
        release($redis, 'race', "worker $number");
    };
});
echo "done\n";
