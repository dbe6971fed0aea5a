<?php
// phpredis while Redis is lost: each line of the input is something to do, and "did ..." says what the application got.
declare(strict_types=1);

[$host, $port] = explode(':', getenv('LOCKPROXY_ADDR'));

function connect(): Redis
{
    global $host, $port;
    $r = new Redis();
    $r->connect($host, (int) $port, 1.0);
    $r->setOption(Redis::OPT_READ_TIMEOUT, -1); // for those that wait
    return $r;
}

$r = connect();

/** ready waits until Redis serves, with a new client if it must. */
function ready(): void
{
    global $r;
    for (;; usleep(50000)) {
        try {
            if ($r->ping()) {
                return;
            }
        } catch (RedisException $e) {
        }
        try {
            $r = connect();
        } catch (RedisException $e) {
        }
    }
}

function subscribe(): void
{
    $s = connect();
    $s->subscribe(['news'], function (Redis $s, string $channel, string $message): void {
        if ($message === 'first') {
            echo "heard\n";
        } elseif ($message === 'last') {
            $s->unsubscribe(['news']);
        }
    });
}

while (($line = fgets(STDIN)) !== false) {
    [$op, $item] = explode(' ', trim($line) . ' ');
    try {
        $got = match ($op) {
            'ready' => ready(),
            'get' => $r->get('k'),
            'push' => $r->rPush('list', $item),
            'pipeline' => $r->pipeline()->rPush('list', $item)->get('k')->exec(),
            'multi' => $r->multi()->rPush('list', $item)->get('k')->exec(),
            'blpop' => $r->blPop(['queue'], 0),
            'subscribe' => subscribe(),
        };
        $error = $r->getLastError();
        $r->clearLastError();
        echo $got === false ? "did false $error\n" : "did ok\n";
    } catch (RedisException $e) {
        echo 'did RedisException ', $e->getMessage(), "\n";
    }
}
