<?php
// Works while it holds a lock. apt install php-cli php-redis; php first.php localhost 6380 orders page1 page2
[, $host, $port, $name] = $argv;
$r = new Redis();
$r->connect($host, (int) $port, 1, null, 0, 15); // an answer may take 15 s, which is longer than BLOCK
// Keep one of these two lines. The first takes a lease: it may be said over any connection, and ends 30 s after the last RENEW. The
// second takes the lock for this connection, which nobody else may use: lockproxy renews it, and frees it when the program dies.
[$owner, $lease] = [['OWNER', bin2hex(random_bytes(16))], ['EX', '30']];
// [$owner, $lease] = [[], []];

// phpredis answers nil with false, and the errors that begin with ERR or WRONGTYPE, too; it throws the others.
$r->rawCommand('LOCK', $name, 'BLOCK', '10000', ...$owner, ...$lease)
    ?: throw new RedisException($r->getLastError() ?? "$name: somebody else has it");
try {
    foreach (array_slice($argv, 4) as $page) {
        $r->rawCommand('RENEW', $name, ...$owner, ...$lease) // every 10 s at least
            ?: throw new RedisException($r->getLastError());
        echo "$page\n";
        sleep(1); // your work
    }
} catch (RedisException $lost) { // somebody else may have the lock: stop
    throw $lost;
} finally {
    isset($lost) || $r->rawCommand('UNLOCK', $name, ...$owner) || throw new RedisException($r->getLastError());
}
