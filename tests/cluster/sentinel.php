<?php
// A program that finds the leader by Sentinel, holds a lock, and still holds it after the leader's end.
//
// Arguments: the ports of the nodes. Says "holds", waits for a line, says "still" when it has asked the new leader.

declare(strict_types=1);

require 'Predis/autoload.php';

const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';

function must(string $name, bool $truth): void
{
    if (!$truth) {
        echo "FAILED $name\n";
        exit(1);
    }
}

function acquire(Predis\Client $redis, string $token): bool
{
    return $redis->set('by-predis', $token, 'PX', 60_000, 'NX') !== null;
}

$nodes = array_map(fn (string $port) => "tcp://127.0.0.1:$port", array_slice($argv, 1));
$redis = new Predis\Client($nodes, ['replication' => 'sentinel', 'service' => 'mymaster']);
$redis->getConnection()->setUpdateSentinels(true);
must('acquire', acquire($redis, 'me'));
echo "holds\n";
fgets(STDIN);
must('the owner still holds it', $redis->get('by-predis') === 'me');
echo 'still ', $redis->getConnection()->getMaster()->getParameters()->port, "\n";
must('another is refused', !acquire($redis, 'other'));
must('release', $redis->eval(RELEASE, 1, 'by-predis', 'me') === 1);
must('it is granted again', acquire($redis, 'other'));
