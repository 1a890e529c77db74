<?php
// Predis: a lock by hand, as its users write one: SET NX PX, EVAL and EVALSHA, WATCH and MULTI, a waiter in BLPOP.

declare(strict_types=1);

require __DIR__ . '/predis_by_hand.php';

function client(): Predis\Client
{
    // A call that waits may wait for longer than sockets do.
    return new Predis\Client([
        'host' => getenv('REDLATCH_HOST'),
        'port' => (int) getenv('REDLATCH_PORT'),
        'read_write_timeout' => 0,
    ]);
}

$first = client();
$second = client();
check('connected', (string) $first->ping() === 'PONG');
check('acquire', acquire($first, 'stock', 'first', 10_000) && $first->get('stock') === 'first');
check('contended acquire is refused', !acquire($second, 'stock', 'second', 10_000));
check('release by a non-owner is refused', !release($second, 'stock', 'second'));
check('extend by a non-owner is refused', !extend($second, 'stock', 'second', 60_000));
check('for as long as before', $first->pttl('stock') <= 10_000);
check('extend', extend($first, 'stock', 'first', 20_000) && $first->pttl('stock') > 19_000);
check('release', release($first, 'stock', 'first') && !$first->exists('stock'));
check('a second release is refused', !release($first, 'stock', 'first'));

$start = now_ms();
check('acquire a short lease', acquire($first, 'lease', 'lapsed', LEASE_MS));
acquire_patiently($second, 'lease', 'heir', 10_000);
check('expiry hands over, not before the lease ended', now_ms() - $start >= LEASE_MS);
check('the lapsed holder cannot release', !release($first, 'lease', 'lapsed'));
check('the heir still holds it', release($second, 'lease', 'heir'));

$waiter = child(function () {
    $redis = client();
    check('a waiter in BLPOP is served', $redis->blpop(['signal'], 10) === ['signal', 'go']);
});
usleep(50_000);
$first->rpush('signal', ['go']);
check('and comes to its end', ended($waiter));

$second->set('count', '1');
$lost = refused(Predis\Transaction\AbortedMultiExecException::class, fn () => $first->transaction(
    ['watch' => 'count', 'cas' => true],
    function ($transaction) use ($second) {
        $transaction->get('count');
        $second->incr('count');
        $transaction->multi();
        $transaction->set('count', '9');
    }
));
check('a transaction whose key was changed comes to nothing', $lost && $first->get('count') === '2');
$replies = $first->transaction(fn ($transaction) => [$transaction->incr('count'), $transaction->get('count')]);
check('a transaction', $replies === [3, '3'], $replies);
$replies = $first->pipeline(fn ($pipe) => [$pipe->incr('count'), acquire_in($pipe), $pipe->pttl('piped')]);
check('a pipeline', $replies[0] === 4 && $replies[2] > 0, $replies);

function acquire_in($pipe): void
{
    $pipe->set('piped', 'me', 'PX', 10_000, 'NX');
}

race(function (int $number) {
    $redis = client();
    return function (callable $critical) use ($redis, $number) {
        $token = "worker-$number-" . bin2hex(random_bytes(8));
        acquire_patiently($redis, 'race', $token, 10_000);
        $critical();
        check('a holder releases', release($redis, 'race', $token));
    };
});
echo "done\n";
