"""Runs a command while it holds the lock that Orders.java takes by Redisson. localhost:6380 is a lockproxy before the same Redis."""
import subprocess
import sys
import redis
from lockproxy import lock

with lock(redis.Redis(port=6380), "orders"):
    subprocess.run(sys.argv[1:])  # your work
