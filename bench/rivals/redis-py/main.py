"""The contestant of redis-py: its Lock, or lockproxy's verbs through its client. The protocol is that of bench/contest."""

import argparse
import asyncio
import json
import os
import sys
import time

import redis
import redis.asyncio

LEASE = 30  # seconds


def parse():
    flags = argparse.ArgumentParser()
    flags.add_argument("-addr")
    flags.add_argument("-lock")
    flags.add_argument("-clients", type=int)
    flags.add_argument("-shared", action="store_true")
    flags.add_argument("-warm", type=float)
    flags.add_argument("-seconds", type=float)
    return flags.parse_args()


class Own:
    """redis-py's own lock, with its own pause between tries: 100 ms."""

    def __init__(self, client, key, _):
        self.lock = client.lock(key, timeout=LEASE)

    async def take(self):
        if not await self.lock.acquire():
            raise RuntimeError("not acquired")

    async def release(self):
        await self.lock.release()


class Lockproxy:
    """lockproxy's verbs, with a named owner, since commands of a pool go through any of its connections."""

    def __init__(self, client, key, i):
        self.client, self.key, self.owner = client, key, f"client-{i}"

    async def take(self):
        if await self.client.execute_command("LOCK", self.key, "BLOCK", 600000, "OWNER", self.owner, "EX", 30) not in (b"OK", True):
            raise RuntimeError("not acquired")

    async def release(self):
        if await self.client.execute_command("UNLOCK", self.key, "OWNER", self.owner) != 1:
            raise RuntimeError("the lock was not held when it was released")


class Loops:
    def __init__(self):
        self.pairs, self.changes, self.holders, self.last, self.sampling, self.took = 0, 0, 0, None, False, []

    async def loop(self, lock, shared):
        while True:
            began = time.perf_counter()
            await lock.take()
            self.holders += 1
            if shared and self.holders != 1:
                raise RuntimeError(f"{self.holders} clients hold the one lock")
            changed, self.last = shared and self.last is not lock, lock
            self.holders -= 1
            await lock.release()
            self.pairs += 1
            self.changes += changed
            if self.sampling and (changed or not shared):
                self.took.append(time.perf_counter() - began)


def end(task):
    """A loop ends only by failing, and its failure is ours."""
    if not task.cancelled():
        print(repr(task.exception()), file=sys.stderr)
        os._exit(1)


async def main(flags):
    host, port = flags.addr.rsplit(":", 1)
    client = redis.asyncio.Redis(
        host=host, port=int(port), max_connections=flags.clients + 1, socket_timeout=None
    )
    await client.ping()
    kind, loops, tasks = {"own": Own, "lockproxy": Lockproxy}[flags.lock], Loops(), []
    for i in range(flags.clients):
        key = f"bench:lock:{os.getpid()}:{0 if flags.shared else i}"
        tasks.append(asyncio.create_task(loops.loop(kind(client, key, i), flags.shared)))
        tasks[-1].add_done_callback(end)
    await asyncio.sleep(flags.warm)
    print("begin", flush=True)
    pairs, changes, began = loops.pairs, loops.changes, time.perf_counter()
    loops.sampling = True
    await asyncio.sleep(flags.seconds)
    loops.sampling = False
    pairs, changes, seconds = loops.pairs - pairs, loops.changes - changes, time.perf_counter() - began
    took = sorted(loops.took) or [0]

    def at(part):
        return took[int(part * (len(took) - 1))] * 1e6

    result = {"version": redis.__version__, "pairs": pairs, "changes": changes, "seconds": seconds}
    print(json.dumps(result | {"p50_us": at(0.5), "p99_us": at(0.99)}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


asyncio.run(main(parse()))
