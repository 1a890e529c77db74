<?php
// What the PHP programs share: where the servers are, how a check is told, and how processes race. A process has one
// thread here, so whoever waits, or is waited for, is a child.

declare(strict_types=1);

const LEASE_MS = 300;
const WORKERS = 3;
const ROUNDS = 10;

function connect(?int $port = null): Redis
{
    $redis = new Redis();
    $redis->connect(getenv('REDLATCH_HOST'), $port ?? (int) getenv('REDLATCH_PORT'));
    return $redis;
}

/** Where the servers listen. */
function ports(): array
{
    return array_map(intval(...), explode(',', getenv('REDLATCH_PORTS')));
}

function check(string $name, bool $truth, mixed ...$seen): void
{
    if (!$truth) {
        echo "FAILED $name ", json_encode($seen), "\n";
        exit(1);
    }
    echo "ok $name\n";
}

function now_ms(): float
{
    return hrtime(true) / 1e6;
}

/** Whether something throws that. */
function refused(string $refusal, callable $deed): bool
{
    try {
        $deed();
        return false;
    } catch (Exception $error) {
        if ($error instanceof $refusal) {
            return true;
        }
        throw $error;
    }
}

/** Runs something in a child of this process, which must make its own connections. */
function child(callable $deed): int
{
    $child = pcntl_fork();
    if ($child === 0) {
        try {
            $deed();
            // Without destructors: what the parent holds is not the child's to release.
            posix_kill(getmypid(), SIGKILL);
        } catch (Throwable $error) {
            fwrite(STDERR, $error . "\n");
            exit(1);
        }
    }
    return $child;
}

/** Whether a child came to its end. */
function ended(int $child): bool
{
    pcntl_waitpid($child, $status);
    return pcntl_wifsignaled($status) && pcntl_wtermsig($status) === SIGKILL;
}

/**
 * A counter in a file loses updates unless its users exclude each other. $worker makes, in each child, what runs a
 * critical section under the lock.
 */
function race(callable $worker): void
{
    $file = tempnam(sys_get_temp_dir(), 'race');
    file_put_contents($file, '0');
    $children = [];
    for ($number = 0; $number < WORKERS; $number++) {
        $children[] = child(function () use ($worker, $file, $number) {
            $round = $worker($number);
            for ($done = 0; $done < ROUNDS; $done++) {
                $round(function () use ($file) {
                    $seen = (int) file_get_contents($file);
                    usleep(1000);
                    file_put_contents($file, (string) ($seen + 1));
                });
            }
        });
    }
    $ended = array_map(ended(...), $children);
    $count = (int) file_get_contents($file);
    unlink($file);
    check('all workers end', !in_array(false, $ended, true));
    check('no update is lost', $count === WORKERS * ROUNDS, $count);
}
