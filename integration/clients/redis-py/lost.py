"""redis-py while Redis is lost: each line of the input is something to do, and "did ..." says what the application got."""
import os
import sys
import time

import redis

HOST, PORT = os.environ["LOCKPROXY_ADDR"].rsplit(":", 1)
r = redis.Redis(host=HOST, port=int(PORT), decode_responses=True)


def ready():
    while True:
        try:
            return r.ping()
        except redis.RedisError:
            time.sleep(0.05)


def pipeline(item, transaction):
    p = r.pipeline(transaction=transaction)
    p.rpush("list", item)
    p.get("k")
    p.execute()


def subscribe():
    p = r.pubsub()
    p.subscribe("news")
    for message in p.listen():
        if message["type"] == "subscribe":
            print("heard", flush=True)
        elif message["data"] == "last":
            return


DO = {
    "ready": lambda _: ready(),
    "get": lambda _: r.get("k"),
    "push": lambda item: r.rpush("list", item),
    "pipeline": lambda item: pipeline(item, False),
    "multi": lambda item: pipeline(item, True),
    "blpop": lambda _: r.blpop("queue", 0),
    "subscribe": lambda _: subscribe(),
}
for line in sys.stdin:
    op, _, item = line.strip().partition(" ")
    try:
        DO[op](item)
        print("did ok", flush=True)
    except Exception as e:
        print("did", type(e).__name__, e, flush=True)
