"""Takes and gives back a lock of the proxy at a port, with what has been installed."""
import sys

import redis
from lockproxy import lock

r = redis.Redis(port=int(sys.argv[1]))
with lock(r, "installed", wait=10) as held:
    held.check()
    if not held.token or not r.exists("installed"):
        sys.exit("it is not held")
if r.exists("installed"):
    sys.exit("it was not given back")
