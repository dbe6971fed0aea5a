"""Celery: a task that two beats have sent, or that is delivered again, is done once.

The lock keeps two workers apart, and the mark tells the later one that the work was done. FENCED sets the mark only if this worker has the
lock still. localhost:6380 is a lockproxy.
"""
import redis
from celery import Celery
from lockproxy import NotAcquired, lock

r = redis.Redis(port=6380)
app = Celery("shop", broker="redis://localhost:6380", backend="redis://localhost:6380")

@app.task
def bill(month):
    try:
        with lock(r, f"bill:{month}", wait=0) as held:
            if r.exists(f"billed:{month}"):
                return "was done"
            r.rpush("bills", month)  # your work
            r.execute_command("FENCED", f"bill:{month}", "OWNER", held.owner, "SET", f"billed:{month}", 1)
            return "done"
    except NotAcquired:
        return "another worker does it"
