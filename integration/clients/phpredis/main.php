<?php
// phpredis through lockproxy: every step prints "ok <step>", and the first failure ends the program.
declare(strict_types=1);

[$host, $port] = explode(':', getenv('LOCKPROXY_ADDR'));

function connect(float $patience = 5.0): Redis
{
    global $host, $port;
    $r = new Redis();
    $r->connect($host, (int) $port, 1.0);
    $r->setOption(Redis::OPT_READ_TIMEOUT, $patience);
    return $r;
}

function ok(string $step): void
{
    echo "ok $step\n";
}

function same(mixed $got, mixed $want): void
{
    if ($got !== $want) {
        throw new Exception(var_export($got, true) . ', want ' . var_export($want, true));
    }
}

/** fails wants a RedisException that begins with the code: phpredis throws for every error but a few old ones. */
function fails(Redis $r, string $code, string ...$words): void
{
    try {
        same($r->rawCommand(...$words), "error $code");
    } catch (RedisException $e) {
        same(strtok($e->getMessage(), ' '), $code);
    }
}

/** soon runs work a little later in a process of its own. */
function soon(callable $work): int
{
    $pid = pcntl_fork();
    if ($pid === 0) {
        usleep(300_000);
        $work();
        posix_kill(posix_getpid(), SIGKILL); // without closing what it shares with its parent
    }
    return $pid;
}

/** lose asks whoever runs this program to delete the lock behind the proxy's back; waits until the proxy has noticed. */
function lose(string $key): void
{
    echo "lose $key\n";
    fgets(STDIN);
}

function handshake(Redis $r): void
{
    same(preg_match('/ resp=2/', $r->rawCommand('CLIENT', 'INFO')), 1); // phpredis speaks RESP2
    ok('handshake');
}

function data(Redis $r): void
{
    same($r->set('greeting', 'hello', ['ex' => 60]), true);
    same($r->get('greeting'), 'hello');
    same($r->get('nothing'), false);
    same($r->incrBy('n', 42), 42);
    ok('strings');

    same($r->hMSet('user', ['name' => 'Ada', 'born' => 1815]), true);
    same($r->hGetAll('user'), ['name' => 'Ada', 'born' => '1815']);
    ok('hashes');

    $pipe = $r->multi(Redis::PIPELINE);
    for ($i = 0; $i < 1000; $i++) {
        $pipe->set("p:$i", (string) $i)->get("p:$i");
    }
    same($pipe->exec()[1999], '999');
    ok('pipeline');

    same($r->multi()->set('a', '1')->incr('a')->get('a')->exec(), [true, 2, '2']);
    ok('transaction');

    $r->watch('a');
    connect()->set('a', 'changed by another');
    same($r->multi()->set('a', 'lost update')->exec(), false);
    same($r->get('a'), 'changed by another');
    ok('watch');

    $heard = [];
    $listener = connect(1.0);
    soon(fn () => connect()->publish('news', 'extra'));
    try {
        $listener->subscribe(['news'], function (Redis $listener, string $channel, string $message) use (&$heard) {
            $heard = $listener->unsubscribe([$channel]) + ['message' => $message];
        });
    } catch (RedisException) {
        // phpredis 5 reads on after the last unsubscribe, until its time-out
    }
    same($heard, ['news' => true, 'message' => 'extra']);
    same($listener->get('greeting'), 'hello');
    ok('pubsub');

    same($r->blPop('queue', 1), []);
    soon(fn () => connect()->rPush('queue', 'job'));
    same($r->blPop('queue', 4), ['queue', 'job']);
    ok('blocking');

    same($r->eval('return {KEYS[1], ARGV[1]}', ['k', 'v'], 1), ['k', 'v']);
    $sha = $r->script('load', 'return tonumber(ARGV[1]) * 2');
    same($r->evalSha($sha, ['21']), 42);
    $r->script('flush');
    same($r->evalSha($sha, ['21']), false);
    same(strtok($r->getLastError(), ' '), 'NOSCRIPT');
    ok('scripts');
}

/** critical adds one to a counter in two steps, which only the lock makes safe: the way for persistent connections, too. */
function critical(Redis $r, string $key): void
{
    $owner = bin2hex(random_bytes(16));
    while (!$r->rawCommand('LOCK', $key, 'OWNER', $owner, 'EX', '30', 'BLOCK', '2000'));
    try {
        $r->set('counter', (string) ((int) $r->get('counter') + 1));
    } finally {
        $r->rawCommand('UNLOCK', $key, 'OWNER', $owner);
    }
}

function locks(Redis $r): void
{
    $mine = connect(); // the lock ends with this connection
    same($mine->rawCommand('LOCK', 'plain'), true);
    same($mine->rawCommand('LOCK', 'plain'), true); // phpredis names no library: a connection is one holder, who may enter again
    same($mine->rawCommand('UNLOCK', 'plain'), 0);
    same($mine->rawCommand('UNLOCK', 'plain'), 1);
    fails($mine, 'NOTHELD', 'UNLOCK', 'plain');
    ok('lock');

    $r->set('counter', '0');
    $workers = [];
    for ($i = 0; $i < 8; $i++) {
        $workers[] = soon(function () {
            $own = connect();
            for ($i = 0; $i < 10; $i++) {
                critical($own, 'section');
            }
        });
    }
    foreach ($workers as $pid) {
        pcntl_waitpid($pid, $status);
    }
    same($r->get('counter'), '80');
    ok('owner');

    // Contention: nil (false) at once, then a wait that the other's UNLOCK ends.
    $other = connect();
    same($mine->rawCommand('LOCK', 'busy'), true);
    same($other->rawCommand('LOCK', 'busy'), false);
    soon(fn () => $mine->rawCommand('UNLOCK', 'busy'));
    same($other->rawCommand('LOCK', 'busy', 'BLOCK', '4000'), true);
    ok('contention');

    // BLOCK shorter than the client's patience: nil. Longer: it gives up, but the connection stays open, and the wait with
    // it (and so would a reply nobody expects any more). close() ends it.
    same($r->rawCommand('LOCK', 'busy', 'OWNER', 'late', 'EX', '30', 'BLOCK', '300'), false);
    $hasty = connect(0.5);
    try {
        same($hasty->rawCommand('LOCK', 'busy', 'BLOCK', '60000'), 'a time-out');
    } catch (RedisException $e) {
        same(preg_match('/read error|socket error on read/', $e->getMessage()), 1);
        $hasty->close();
    }
    same($other->rawCommand('UNLOCK', 'busy'), 1);
    same($r->rawCommand('LOCK', 'busy', 'OWNER', 'late', 'EX', '30', 'BLOCK', '4000'), true);
    same($r->rawCommand('UNLOCK', 'busy', 'OWNER', 'late'), 1);
    ok('block');

    // A lock is lost while the connection is idle. Nothing is pushed in RESP2; UNLOCK tells it.
    same($mine->rawCommand('LOCK', 'lost'), true);
    lose('lost');
    for ($i = 0; $i < 20; $i++) {
        same($mine->set('after', (string) $i), true);
        same($mine->get('after'), (string) $i);
    }
    fails($mine, 'LOCKLOST', 'UNLOCK', 'lost');
    ok('lost');
}

$parts = explode(',', getenv('PARTS') ?: 'data,locks');
$r = connect();
handshake($r);
if (in_array('data', $parts)) {
    data($r);
}
if (in_array('locks', $parts)) {
    locks($r);
}
