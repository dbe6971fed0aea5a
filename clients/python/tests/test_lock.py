"""What a program with a pool may rely on, before real servers: `python -m unittest discover -s tests`."""
import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
import typing
import unittest

import redis
import redis.asyncio

import servers
from lockproxy import Hold, Lost, NotAcquired, aio, lock


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.redis = servers.start_redis()
        cls.proxy = servers.start_proxy(cls.redis.port)
        cls.addClassCleanup(cls.redis.kill)
        cls.addClassCleanup(cls.proxy.kill)

    def client(self, port=None, **options):
        r = redis.Redis(port=port or self.proxy.port, **options)
        self.addCleanup(r.close)
        return r


class Waiters(Case):
    def test_more_threads_than_the_pool_has_connections(self):
        """Each adds one to a counter in two steps, over the pool that the locks must not use up."""
        for pool in (redis.ConnectionPool, redis.BlockingConnectionPool):
            with self.subTest(pool.__name__):
                r = redis.Redis(connection_pool=pool(port=self.proxy.port, max_connections=10))
                r.set("n", 0)

                def work(_):
                    with lock(r, "pool", wait=60):
                        n = int(r.get("n"))
                        time.sleep(0.01)
                        r.set("n", n + 1)

                with concurrent.futures.ThreadPoolExecutor(60) as threads:
                    list(threads.map(work, range(60)))
                self.assertEqual(int(r.get("n")), 60)
                r.connection_pool.disconnect()

    def test_wait(self):
        """0 asks once, and without wait it takes as long as it takes: here several of the questions that a wait consists of."""
        r, got = self.client(), []

        def later(watched):
            with lock(r, "busy", lease=1, watched=watched):
                got.append(watched)

        waiters = [threading.Thread(target=later, args=(watched,)) for watched in (False, True)]
        with lock(r, "busy"):
            for waiter in waiters:
                waiter.start()
            for wait in (0, 0.3):
                began = time.monotonic()
                with self.assertRaises(NotAcquired), lock(r, "busy", wait=wait):
                    self.fail("two have it")
                self.assertGreaterEqual(time.monotonic() - began, wait)
            time.sleep(3)
            self.assertEqual(got, [])
        for waiter in waiters:
            waiter.join()
        self.assertCountEqual(got, [False, True])
        with self.assertRaises(ValueError), lock(r, "busy", wait=-1):
            pass

    def test_a_wait_longer_than_the_lease(self):
        r, began = self.client(), time.monotonic()
        entered = threading.Event()

        def hold():
            with lock(r, "long"):
                entered.set()
                time.sleep(5)

        holder = threading.Thread(target=hold)
        holder.start()
        entered.wait()
        with lock(r, "long", wait=None, lease=4) as held:
            self.assertGreater(time.monotonic() - began, 4.5)
            for _ in range(50):
                self.assertFalse(held.lost)
                time.sleep(0.1)
        holder.join()

    def test_waiting_is_interrupted(self):
        """What is granted to a wait that has ended is given back."""
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port)

            async def wait():
                async with aio.lock(r, "interrupted", wait=None):
                    self.fail("it was granted")

            with lock(self.client(), "interrupted"):
                waiter = asyncio.create_task(wait())
                await asyncio.sleep(0.3)
                waiter.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiter
            async with aio.lock(r, "interrupted", wait=5):
                pass
            await r.aclose()

        asyncio.run(main())


    def nothing_is_held(self, names):
        """Soon: what had no answer is given back by and by."""
        r, end = self.client(), time.monotonic() + 20
        while time.monotonic() < end and (held := [name for name in names if r.exists(name)]):
            time.sleep(0.05)
        self.assertEqual(held, [])

    def test_a_cancelled_task_leaves_nothing(self):
        """Also when the grant has arrived already, and when the event loop ends at once."""
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port)

            async def section(name):
                async with aio.lock(r, name):
                    pass

            async def warm(i):
                async with aio.lock(r, f"warm{i}"):
                    await asyncio.sleep(0.3)

            await asyncio.gather(*map(warm, range(20)))
            for i in range(40):
                task = asyncio.create_task(section(f"cancel{i}"))
                for _ in range(3 + i % 10):
                    await asyncio.sleep(0)
                time.sleep(0.03)  # the reply arrives
                task.cancel()
                await asyncio.wait([task])
            self.last = [asyncio.create_task(section(f"end{i}")) for i in range(20)]
            for _ in range(8):
                await asyncio.sleep(0)
            time.sleep(0.1)

        asyncio.run(main())
        self.nothing_is_held([f"cancel{i}" for i in range(40)] + [f"end{i}" for i in range(20)])

    def test_a_cancelled_wait_leaves_no_waiter(self):
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port)
            with lock(self.client(), "waited for"):
                for watched in (False, True):
                    began = time.monotonic()
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(aio.lock(r, "waited for", lease=120, watched=watched).acquire(), 0.3)
                    while "waiting" in str(await r.execute_command("LOCKLIST", "MATCH", "waited for")):
                        self.assertLess(time.monotonic() - began, 15)  # LOCK alone waits for 30 s
            await r.aclose()

        asyncio.run(main())

    def test_a_signal_ends_a_wait(self):
        """What is granted to it is given back, whether that comes before the signal, with it or later."""
        class Interrupt(BaseException):
            pass

        def handler(*_):
            raise Interrupt

        r, other = self.client(), lock(self.client(), "signal")
        old = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        other.acquire()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaises(Interrupt), lock(r, "signal", wait=None, lease=2):
            self.fail("two have it")
        other.release()
        interrupted = 0
        for i in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + i * 0.00005)
                with lock(r, f"signal{i}"):
                    pass
                time.sleep(0.01)
            except (Interrupt, KeyError, RuntimeError):  # those of threading, which does not foresee it
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertGreater(interrupted, 0)
        self.nothing_is_held(["signal"] + [f"signal{i}" for i in range(60)])

    def test_a_grant_whose_reply_was_lost_is_given_back(self):
        """The connections break behind LOCK until the caller gives up, and then no more."""
        cut = servers.Cut(self.proxy.port, b"LOCK")
        self.addCleanup(cut.close)
        r = self.client(cut.port)

        async def main():
            async with aio.lock(redis.asyncio.Redis(port=cut.port), "unheard-aio", wait=0):
                self.fail("it was heard")

        with self.assertRaises(redis.ConnectionError), lock(r, "unheard", wait=0):
            self.fail("it was heard")
        with self.assertRaises(redis.ConnectionError):
            asyncio.run(main())
        self.assertEqual(cut.times, 4)
        self.nothing_is_held(["unheard", "unheard-aio"])


class Objects(Case):
    def test_acquire_and_release(self):
        r = self.client()
        for watched in (False, True):
            orders = lock(r, "object", wait=0, watched=watched)
            for _ in range(2):
                held = orders.acquire()
                self.assertFalse(held.lost)
                with self.assertRaisesRegex(RuntimeError, "in use"):
                    orders.acquire()
                with self.assertRaises(NotAcquired):
                    lock(r, "object", wait=0).acquire()
                orders.release()
            with self.assertRaisesRegex(RuntimeError, "no lock"):
                orders.release()
            orders.acquire()
            r.execute_command("UNLOCK", "object", "FORCE")
            with self.assertRaises(Lost):
                orders.release()
        with orders:
            orders.release()
            lock(r, "object", wait=0).acquire()

    def test_acquire_and_release_in_tasks(self):
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port)
            orders = aio.lock(r, "object-aio", wait=0)
            await orders.acquire()
            with self.assertRaises(NotAcquired):
                await aio.lock(r, "object-aio", wait=0).acquire()
            await asyncio.create_task(orders.release())
            async with orders as held:
                held.leave()
            with self.assertRaises(NotAcquired):
                await orders.acquire()
            await r.aclose()

        asyncio.run(main())

    def test_limit(self):
        """Three of four have a place. The fourth gets that of one that gives it back, or whose connection is closed."""
        r = self.client()
        for watched in (False, True):
            places = [lock(r, "limit", wait=0, limit=3, watched=watched) for _ in range(3)]
            holds = [place.acquire() for place in places]
            self.assertEqual([hold.token for hold in holds], [0, 0, 0])
            with self.assertRaises(NotAcquired):
                lock(r, "limit", wait=0, limit=3, watched=watched).acquire()
            fourth = lock(r, "limit", wait=60, limit=3)
            waiter = threading.Thread(target=fourth.acquire)
            waiter.start()
            while "waiting" not in str(r.execute_command("LOCKLIST", "MATCH", "limit")):
                self.assertTrue(waiter.is_alive())
                time.sleep(0.02)
            places[0].release()
            waiter.join()
            if watched:
                holds[1].leave()  # its connection is closed, without UNLOCK
            places[1].release()
            with lock(r, "limit", wait=20, limit=3):
                pass
            places[2].release()
            fourth.release()
            self.assertEqual(r.exists("limit"), 0)

    def test_limit_in_tasks(self):
        async def main():
            r, now, most = redis.asyncio.Redis(port=self.proxy.port), 0, []

            async def work():
                nonlocal now
                async with aio.lock(r, "limit-aio", limit=3, wait=60):
                    now += 1
                    most.append(now)
                    await asyncio.sleep(0.05)
                    now -= 1

            await asyncio.gather(*(work() for _ in range(12)))
            self.assertEqual((len(most), max(most)), (12, 3))
            await r.aclose()

        asyncio.run(main())

    def test_the_wrong_client(self):
        with self.assertRaisesRegex(TypeError, "lockproxy.aio.lock"):
            lock(redis.asyncio.Redis(port=1), "wrong")
        with self.assertRaisesRegex(TypeError, "use lockproxy.lock"):
            aio.lock(redis.Redis(port=1), "wrong")

    def test_types(self):
        for function in (lock.acquire, lock.__enter__, aio.lock.acquire, aio.lock.__aenter__):
            self.assertIs(typing.get_type_hints(function)["return"], Hold)

    def test_no_lockproxy(self):
        with self.assertRaisesRegex(redis.ResponseError, "this is no lockproxy"), lock(self.client(self.redis.port), "bare"):
            pass

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_a_fork_within_a_block(self):
        """The child has no part in the hold: it is lost there, and given back by the parent alone."""
        r = self.client()
        with lock(r, "fork", lease=2) as held:
            child = subprocess.run([sys.executable, "-c", FORK, str(self.proxy.port)], capture_output=True, text=True, timeout=60)
            self.assertEqual((child.stdout, child.returncode), ("child Lost\nnew\nparent\n", 0), child.stderr)
            self.assertFalse(held.lost)

    def test_one_client_in_several_loops(self):
        r = redis.asyncio.Redis(port=self.proxy.port, single_connection_client=False)

        async def main():
            async with aio.lock(r, "loops"):
                pass
            await r.connection_pool.disconnect()

        for _ in range(3):
            asyncio.run(main())
        self.assertEqual(len(aio._pools[r]), 1)


FORK = """
import os, sys, time, redis
from lockproxy import lock, Lost
r = redis.Redis(port=int(sys.argv[1]))
try:
    with lock(r, "forked", lease=2) as held:
        pid = os.fork()
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
            assert not held.lost
except Lost:
    print("child Lost", flush=True)
    with lock(r, "forked in the child"):
        print("new", flush=True)
    time.sleep(3)  # the parent renews on
    os._exit(0)
with lock(r, "forked", wait=0):
    print("parent")
"""


class Cluster(unittest.TestCase):
    """Clients in cluster mode, of a proxy that presents a cluster."""

    def test_both(self):
        store = servers.start_redis()
        self.addCleanup(store.kill)
        proxy = servers.start_proxy(store.port, "--present", "cluster")
        self.addCleanup(proxy.kill)
        r = redis.RedisCluster(port=proxy.port, host="127.0.0.1")
        self.addCleanup(r.close)

        async def main():
            async with redis.asyncio.RedisCluster(port=proxy.port, host="127.0.0.1") as a:
                with self.assertRaises(NotAcquired):
                    await aio.lock(a, "cluster", wait=0).acquire()
                async with aio.lock(a, "cluster-aio", watched=True) as held:
                    self.assertGreater(held.token, 0)

        with lock(r, "cluster"):
            asyncio.run(main())


class Holders(Case):
    def test_the_owner_names_the_process(self):
        r = self.client()
        with lock(r, "named") as held:
            self.assertRegex(held.owner, r"^.+:\d+:[0-9a-f]{32}$")
            self.assertIn(held.owner, str(r.execute_command("LOCKINFO", "named")))

    def test_tokens_rise(self):
        r, last = self.client(decode_responses=True), 0
        for watched in (False, True, False):
            with lock(r, "fenced", watched=watched) as held:
                self.assertGreater(held.token, last)
                last = held.token

    def test_a_lock_that_was_freed_by_force_is_lost(self):
        r = self.client()
        for watched in (False, True):
            with self.subTest(watched=watched):
                with self.assertRaises(Lost), lock(r, "forced", lease=1, watched=watched) as held:
                    r.execute_command("UNLOCK", "forced", "FORCE")
                    end = time.monotonic() + 20
                    while not held.lost and time.monotonic() < end:
                        time.sleep(0.05)
                    self.assertTrue(held.lost)
                    with self.assertRaises(Lost):
                        held.check()

    def test_an_error_of_the_block_is_raised_as_it_is(self):
        r = self.client()
        with self.assertRaises(KeyError) as caught, lock(r, "error"):
            r.execute_command("UNLOCK", "error", "FORCE")
            raise KeyError("mine")
        self.assertEqual(caught.exception.args, ("mine",))
        with lock(r, "error", wait=0):
            pass

    def test_a_long_job_is_renewed(self):
        r = self.client()
        for watched in (False, True):
            with lock(r, "job", lease=1, watched=watched):
                time.sleep(3)
                with self.assertRaises(NotAcquired), lock(r, "job", wait=0):
                    self.fail("two have it")


class Faults(Case):
    def test_redis_is_killed_and_comes_back(self):
        """Its append-only file has the lock still, and no error in between ends the hold."""
        r = self.client()
        with lock(r, "outage", lease=30) as held:
            self.redis.kill()
            time.sleep(0.5)
            self.redis.start()
            self.assertFalse(held.lost)
        with lock(r, "outage", wait=5):
            pass

    def test_errors_to_a_renewal_do_not_end_the_hold(self):
        r = self.client()
        with lock(r, "unavailable", lease=6) as held:
            self.redis.kill()
            time.sleep(3)  # a renewal or two are answered with an error
            self.redis.start()
            end = time.monotonic() + 4
            while time.monotonic() < end:
                self.assertFalse(held.lost)
                time.sleep(0.05)

    def test_a_dead_proxy_ends_the_hold_with_the_lease(self):
        r = self.client()
        with self.assertRaises(Lost), lock(r, "dead", lease=1) as held:
            self.proxy.kill()
            try:
                time.sleep(2)
                self.assertTrue(held.lost)
            finally:
                self.proxy.start()
            time.sleep(1)
            self.assertTrue(held.lost, "a lost lock came back")

    def test_another_proxy_goes_on_with_the_lease(self):
        """Here the same one after a restart: nothing of a lease is in the proxy."""
        r = self.client()
        with lock(r, "restart", lease=5) as held:
            self.proxy.kill()
            self.proxy.start()
            time.sleep(6)
            self.assertFalse(held.lost)

    def test_a_watched_lock_ends_with_its_connection(self):
        r = self.client()
        with self.assertRaises(Lost), lock(r, "watched", watched=True) as held:
            r.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            end = time.monotonic() + 20
            while not held.lost and time.monotonic() < end:
                time.sleep(0.05)
            self.assertTrue(held.lost)

    def test_a_balancer_closes_what_is_idle(self):
        balancer = servers.Wire(self.proxy.port, 1)
        self.addCleanup(balancer.close)
        r = self.client(balancer.port)
        with lock(r, "idle", lease=6) as held:
            time.sleep(7)
            self.assertFalse(held.lost)
        time.sleep(2)
        with lock(r, "idle"):
            pass

    def test_a_block_that_lost_its_connection_leaves_the_lock(self):
        r = self.client()
        with self.assertRaises(redis.ConnectionError), lock(r, "write", lease=2):
            raise redis.ConnectionError("the write has no answer")
        with self.assertRaises(NotAcquired), lock(r, "write", wait=0):
            self.fail("it was given back")
        with lock(r, "write", wait=10):
            pass


class Asyncio(Case):
    def test_more_tasks_than_the_pool_has_connections(self):
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port, max_connections=10)
            await r.set("m", 0)

            async def work():
                async with aio.lock(r, "pool-aio", wait=60) as held:
                    n = int(await r.get("m"))
                    await asyncio.sleep(0.01)
                    await r.set("m", n + 1)
                    held.check()

            await asyncio.gather(*(work() for _ in range(60)))
            self.assertEqual(int(await r.get("m")), 60)
            await r.aclose()

        asyncio.run(main())

    def test_cancelled_and_failing_blocks_give_the_lock_back(self):
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port)

            async def forever():
                async with aio.lock(r, "cancelled"):
                    await asyncio.sleep(3600)

            task = asyncio.create_task(forever())
            await asyncio.sleep(0.3)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            async with aio.lock(r, "cancelled", wait=0):
                pass
            with self.assertRaises(KeyError):
                async with aio.lock(r, "cancelled", watched=True):
                    raise KeyError("mine")
            async with aio.lock(r, "cancelled", wait=0):
                pass
            await r.aclose()

        asyncio.run(main())

    def test_lost(self):
        async def main():
            r = redis.asyncio.Redis(port=self.proxy.port)
            with self.assertRaises(Lost):
                async with aio.lock(r, "forced-aio", lease=1) as held:
                    await r.execute_command("UNLOCK", "forced-aio", "FORCE")
                    while not held.lost:
                        await asyncio.sleep(0.05)
            await r.aclose()

        asyncio.run(asyncio.wait_for(main(), 30))


if __name__ == "__main__":
    unittest.main()
