"""A redis-server and a lockproxy of the tests' own. LOCKPROXY is the program; it stands in the environment."""
import os
import select
import socket
import subprocess
import tempfile
import threading
import time

import redis


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A program that can be killed and started again."""

    def __init__(self, words, port):
        self.words, self.port = words, port
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = redis.Redis(port=self.port)
        end = time.monotonic() + 30
        while True:
            try:
                if client.ping():
                    break
            except redis.RedisError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.02)
        client.close()

    def kill(self):
        self.process.kill()
        self.process.wait()


def start_redis():
    port = free_port()
    return Server(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always",
                   "--dir", tempfile.mkdtemp()], port)


def start_proxy(upstream, *more):
    port = free_port()
    return Server([os.environ["LOCKPROXY"], "--listen", f"127.0.0.1:{port}", "--upstream", f"redis://127.0.0.1:{upstream}", *more], port)


class Wire:
    """Passes bytes on, and closes what was idle for so many seconds, as load balancers do."""

    def __init__(self, to, idle=None):
        self.to, self.idle = to, idle
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client, server):
        asked = b""
        try:
            while True:
                ready, _, _ = select.select([client, server], [], [], self.idle)
                if not ready:
                    return
                for at in ready:
                    data = at.recv(65536)
                    if not data or at is server and self.is_cut(asked):
                        return
                    if at is client:
                        asked = data
                    (server if at is client else client).sendall(data)
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def is_cut(self, asked):
        """Whether the connection ends instead of the reply."""
        return False

    def close(self):
        self.listener.close()


class Cut(Wire):
    """Closes a connection at the reply to each of the first four commands of a verb."""

    def __init__(self, to, verb):
        self.verb, self.times = verb, 0
        super().__init__(to)

    def is_cut(self, asked):
        if b"\r\n" + self.verb + b"\r\n" not in asked or self.times == 4:
            return False
        self.times += 1
        return True
