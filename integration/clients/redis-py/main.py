"""redis-py through lockproxy: every step prints "ok <step>", and the first failure ends the program."""
import os
import sys
import threading
import time

import redis
from lockproxy import Lost, lock

HOST, PORT = os.environ["LOCKPROXY_ADDR"].rsplit(":", 1)
NODES = "LOCKPROXY_NODES" in os.environ  # several stand behind lockproxy; to PUBLISH one counts those who listen there
CLUSTER = os.environ.get("LOCKPROXY_MODE") == "cluster"


def connect(**options):
    """A client with a pool, of one Redis or of a cluster."""
    client = redis.RedisCluster if CLUSTER else redis.Redis
    return client(host=HOST, port=int(PORT), decode_responses=True, **options)


def alone():
    """A connection of one's own; a cluster's client has one to each node instead."""
    return redis.Redis(host=HOST, port=int(PORT), decode_responses=True, single_connection_client=True)


def ok(step):
    print("ok", step, flush=True)


def fails(call, *args):
    """The text of the error that call raises."""
    try:
        return f"no error but {call(*args)!r}"
    except redis.RedisError as error:
        return str(error)


def lose(key):
    """Asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed."""
    print("lose", key, flush=True)
    sys.stdin.readline()


def handshake(r):
    if CLUSTER:
        assert [(node.host, node.port) for node in r.get_nodes()] == [(HOST, int(PORT))], r.get_nodes()
    about = (r.get_redis_connection(r.get_default_node()) if CLUSTER else r).client_info()  # HELLO 3 and CLIENT SETINFO were sent by redis-py itself
    assert about["resp"] == "3" and (about.get("lib-name", "redis-py") == "redis-py"), about
    ok("handshake")


def data(r):
    assert r.set("greeting", "hello", ex=60) and r.get("greeting") == "hello" and r.get("nothing") is None
    assert r.incrby("n", 41) and r.incr("n") == 42
    ok("strings")

    assert r.hset("user", mapping={"name": "Ada", "born": 1815}) == 2
    assert r.hgetall("user") == {"name": "Ada", "born": "1815"}
    ok("hashes")

    with r.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.set(f"p:{i}", i).get(f"p:{i}")
        assert pipe.execute()[1::2] == [str(i) for i in range(1000)]
    ok("pipeline")

    with r.pipeline(transaction=True) as pipe:
        assert pipe.set("a", 1).incr("a").get("a").execute() == ["OK" if CLUSTER else True, 2, "2"]
    ok("transaction")

    with r.pipeline(transaction=True) as pipe:
        pipe.watch("a")
        r.set("a", "changed by another")
        pipe.multi()
        pipe.set("a", "lost update")
        try:
            pipe.execute()
            raise AssertionError("EXEC ran in spite of the change")
        except redis.WatchError:
            assert r.get("a") == "changed by another"
    ok("watch")

    with r.pubsub() as p:
        p.subscribe("news")
        assert p.get_message(timeout=5)["type"] == "subscribe"
        assert r.publish("news", "extra") == 1 or NODES
        assert p.get_message(timeout=5)["data"] == "extra"
        p.unsubscribe("news")
        assert p.get_message(timeout=5)["type"] == "unsubscribe"
    assert r.get("greeting") == "hello"
    ok("pubsub")

    if CLUSTER:
        with r.pubsub() as p:
            for channel in "shard", "shard:1", "shard:2":  # of three slots, on one connection
                p.ssubscribe(channel)
                assert p.get_sharded_message(timeout=5)["type"] == "ssubscribe"
            for channel in "shard", "shard:1", "shard:2":
                assert r.spublish(channel, "extra") == 1
                assert p.get_sharded_message(timeout=5)["channel"] == channel
        ok("sharded")

    assert r.blpop("queue", timeout=1) is None
    threading.Timer(0.3, r.rpush, ["queue", "job"]).start()
    assert list(r.blpop("queue", timeout=4)) == ["queue", "job"]
    ok("blocking")

    assert r.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v") == ["k", "v"]
    r.script_flush()
    double = r.register_script("return tonumber(ARGV[1]) * 2")  # EVALSHA; after NOSCRIPT: SCRIPT LOAD and once more
    assert double(args=[21]) == 42 and double(args=[4]) == 8
    ok("scripts")


def critical(r, key):
    """Adds one to a counter in two steps, which only the lock makes safe: the way for pools."""
    with lock(r, key, wait=60) as hold:
        r.set("counter", int(r.get("counter")) + 1)
        assert not hold.lost


def locks(r):
    mine = alone()  # the lock ends with this connection
    assert mine.execute_command("LOCK", "plain") == "OK"
    assert "OWNERREQUIRED" in fails(mine.execute_command, "LOCK", "plain")
    assert mine.execute_command("LOCK", "plain", "SELF") == "OK"
    assert mine.execute_command("UNLOCK", "plain") == 0
    assert mine.execute_command("UNLOCK", "plain") == 1
    assert "NOTHELD" in fails(mine.execute_command, "UNLOCK", "plain")
    ok("lock")

    r.set("counter", 0)
    threads = [threading.Thread(target=lambda: [critical(r, "section") for _ in range(10)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("counter") == "80"
    ok("owner")

    # Contention: nil at once, then a wait that the other's UNLOCK ends.
    other = alone()
    assert mine.execute_command("LOCK", "busy") == "OK"
    assert other.execute_command("LOCK", "busy") is None
    threading.Timer(0.3, mine.execute_command, ["UNLOCK", "busy"]).start()
    assert other.execute_command("LOCK", "busy", "BLOCK", 4000) == "OK"
    ok("contention")

    # BLOCK shorter than the client's patience: nil. Longer: the client hangs up, and the wait ends with it.
    assert r.execute_command("LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", 300) is None
    hasty = connect(socket_timeout=0.5, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))
    assert "Timeout" in fails(hasty.execute_command, "LOCK", "busy", "BLOCK", 60000)
    assert other.execute_command("UNLOCK", "busy") == 1
    assert r.execute_command("LOCK", "busy", "OWNER", "late", "EX", "30", "BLOCK", 4000) == "OK"
    assert r.execute_command("UNLOCK", "busy", "OWNER", "late") == 1
    ok("block")


def lost(r):
    # The news of a lost lock arrives while the connection lies idle in the pool: later replies must be the right ones.
    assert r.execute_command("LOCK", "lost") == "OK"
    lose("lost")
    for i in range(20):
        assert r.set("after", i) and r.get("after") == str(i) and r.strlen("after") == len(str(i))
    assert "LOCKLOST" in fails(r.execute_command, "UNLOCK", "lost")
    ok("lost")

    # The block hears of it from the next RENEW, and its end says so.
    try:
        with lock(r, "lost", lease=3) as hold:
            assert not hold.lost
            lose("lost")
            while not hold.lost:
                time.sleep(0.01)
        raise AssertionError("nobody was told")
    except Lost as error:
        assert "NOTHELD" in str(error), error

    # A PubSub object is one connection with a handler for what the server pushes.
    heard = []
    with alone().pubsub(push_handler_func=heard.append) as p:
        p.execute_command("LOCK", "lost")
        assert p.parse_response() == "OK"
        lose("lost")
        p.parse_response(block=False, timeout=5)
    assert heard == [["lock-lost", "lost", "plain", "gone"]], heard
    ok("push")


def main():
    r = connect()
    parts = os.environ.get("PARTS", "data,locks").split(",")
    handshake(r)
    if "data" in parts:
        data(r)
    if "locks" in parts:
        locks(r)
        lost(r)


main()
