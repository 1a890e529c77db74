<?php
// The lock of Laravel's cache on phpredis, as Debian ships both: `get` with a closure.

declare(strict_types=1);

require 'Illuminate/Redis/autoload.php';
require 'Illuminate/Cache/autoload.php';

use Illuminate\Cache\RedisStore;
use Illuminate\Redis\RedisManager;

$server = ['host' => getenv('REDIS_HOST'), 'port' => (int) getenv('REDIS_PORT'), 'database' => 0];
$manager = new RedisManager(null, 'phpredis', ['default' => $server]);
$lock = (new RedisStore($manager))->lock('orders', 10);
if ($lock->get(fn () => $manager->connection()->incr('paid')) === false) {
    throw new RuntimeException('somebody else has it');
}
