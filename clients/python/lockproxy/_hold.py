"""What a hold is worth, decided without a clock, a connection or a thread. The sync and the asyncio lock both use it."""
import math
import os
import socket
import uuid

# Redis' words for: this owner does not have the lock. Any other error to a RENEW leaves the hold as it is.
GONE = ("NOTHELD", "LOCKLOST")
WATCHED_QUESTION = 5.0  # seconds between questions about a lock that the proxy watches, and for each answer


class NotAcquired(TimeoutError):
    """Somebody else had the lock for as long as the caller was willing to wait."""


class Lost(RuntimeError):
    """The lock was lost while it was held: somebody else may have it."""


class Hold:
    """A lock in its holder's hands, as `with lock(...) as held` gives it. Any thread may ask it."""

    def __init__(self, name, owner, lease, clock):
        self.name, self.owner, self.token = name, owner, None
        self._lease, self._clock = lease or math.inf, clock
        self._until, self._why = -math.inf, None

    @property
    def lost(self):
        """Whether somebody else may have the lock. Once it is true it stays so. Ask before each step that needs the lock."""
        if self._why is None and self._clock() >= self._until:
            self._why = "no renewal was confirmed in time"
        return self._why is not None

    def check(self):
        """Raises Lost if the lock was lost."""
        if self.lost:
            raise Lost(f"{self.name}: {self._why}")

    def _answered(self, sent):
        """Redis has confirmed the lease, which counts from before the question was sent: never later than Redis has it."""
        if not self.lost or self._until == -math.inf:
            self._why, self._until = None, max(self._until, sent + self._lease)

    def _gone(self, why):
        """Redis or the connection has said that the lock is not held any more."""
        self._why = self._why or str(why)


class Terms:
    """What is asked of a lock, and the words of each question."""

    def __init__(self, name, wait, lease, watched, fair):
        if not watched and lease < 1:
            raise ValueError("a lease below a second cannot be renewed in time")
        if wait is not None and wait < 0:
            raise ValueError("wait is 0 (ask once), a number of seconds, or None (for ever)")
        self.name, self.wait, self.watched = name, wait, watched
        self.lease = None if watched else lease
        # No question takes longer than a third of the lease. So two thirds of it are left at the grant, however long the wait was.
        self.patience = WATCHED_QUESTION if watched else lease / 3
        self.verb = "FAIRLOCK" if fair else "LOCK"
        self.owner = None if watched else f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"

    def _mine(self):
        return ["SELF"] if self.watched else ["OWNER", self.owner, "PX", int(self.lease * 1000)]

    def lock(self, waited):
        """The words of LOCK after `waited` seconds, and whether it is the last time that it is asked."""
        left = math.inf if self.wait is None else self.wait - waited
        block = min(left, self.patience * 3 / 4)
        words = [self.verb, self.name, *self._mine(), "FENCE"]
        return (words + ["BLOCK", math.ceil(block * 1000)] if block > 0 else words), block >= left

    def end(self, began):
        """When the wait that has begun then is over."""
        return began + (math.inf if self.wait is None else self.wait)

    def renew(self):
        return ["RENEW", self.name] + ([] if self.watched else self._mine())

    def unlock(self):
        return ["UNLOCK", self.name] + ([] if self.watched else ["OWNER", self.owner])

    def pause(self, confirmed):
        """Seconds until the next RENEW; after one without an answer it comes sooner."""
        return self.patience if confirmed else self.patience / 4


UNLOCKS = 4  # how often UNLOCK is asked while Redis or the proxy is away; no two critical sections have one owner


def gone(error):
    """Whether an error of Redis' says that the lock is not held."""
    return str(error).startswith(GONE)
