<?php
// Symfony's Lock on phpredis, as Debian ships both: `acquire` and `release`.

declare(strict_types=1);

require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

$client = new Redis();
$client->connect(getenv('REDIS_HOST'), (int) getenv('REDIS_PORT'));
$lock = (new LockFactory(new RedisStore($client)))->createLock('orders', 10.0);
if (!$lock->acquire()) {
    throw new RuntimeException('somebody else has it');
}
$client->incr('paid');
$lock->release();
