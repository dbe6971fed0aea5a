"""What a hold is worth and what is asked for it, without a connection, a thread or an event loop.

acquire, keep and release are generators, which the sync and the asyncio lock drive. They yield the words of a question (a list), whose
answer or error they are given, or seconds to pause (a number), and are told whether the caller has ended meanwhile.
"""
from __future__ import annotations

import builtins
import logging
import math
import os
import socket
import uuid
from typing import Any, Callable, Generator, Optional

from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

log = logging.getLogger("lockproxy")
NoReply = (RedisError, OSError)

# Redis' words for: this owner does not have the lock. Any other error to a RENEW leaves the hold as it is.
GONE = ("NOTHELD", "LOCKLOST")
UNKNOWN = "the reply to this LOCK was lost"  # Redis may have granted it, or may yet
WATCHED_QUESTION = 5.0  # seconds between questions about a lock that the proxy watches, and for each answer


class NotAcquired(builtins.TimeoutError):
    """Somebody else had the lock for as long as the caller was willing to wait."""


class Lost(RuntimeError):
    """The lock was lost while it was held: somebody else may have it."""


class Hold:
    """A lock in its holder's hands, as `with lock(...) as held` gives it. Any thread may ask it."""

    def __init__(self, name: str, owner: Optional[str], lease: Optional[float], clock: Callable[[], float]) -> None:
        self.name, self.owner = name, owner
        self.token = 0  # the fencing token, once the lock is granted; one with a limit has none
        self._lease, self._clock = lease or math.inf, clock
        self._until, self._why = -math.inf, ""
        self._granted = False
        self._asked = False  # a LOCK has had no answer: Redis may have granted it
        self._left = False
        self._process = os.getpid()

    @property
    def lost(self) -> bool:
        """Whether somebody else may have the lock. Once it is true it stays so. Ask before each step that needs the lock."""
        if not self._why and self._forked:
            self._why = "it is held by the process that this one was forked from"
        if not self._why and self._clock() >= self._until:
            self._why = "no renewal was confirmed in time"
        return bool(self._why)

    def check(self) -> None:
        """Raises Lost if the lock was lost."""
        if self.lost:
            raise Lost(f"{self.name}: {self._why}")

    def leave(self) -> None:
        """Leaves the lock to its lease: its end will only end the renewals. For a write that has had no answer, and may still be on its way."""
        self._left = True

    @property
    def _forked(self) -> bool:
        return os.getpid() != self._process

    def _answered(self, sent: float) -> None:
        """Redis has confirmed the lease, which counts from before the question was sent: never later than Redis has it."""
        if not self._granted or not self.lost:
            self._granted, self._until = True, max(self._until, sent + self._lease)

    def _gone(self, why: object) -> None:
        """Redis or the connection has said that the lock is not held any more."""
        self._why = self._why or str(why)


class Terms:
    """What is asked of a lock, and the words of each question."""

    def __init__(self, name: str, wait: Optional[float], lease: float, watched: bool, fair: bool, limit: Optional[int]) -> None:
        if not watched and (lease is None or not lease >= 1):
            raise ValueError("lease is a second or more, since a shorter one cannot be renewed in time; watched=True is without one")
        if wait is not None and not wait >= 0:
            raise ValueError("wait is 0 (ask once), a number of seconds, or None (for ever)")
        if limit is not None and (fair or not isinstance(limit, int) or limit < 1):
            raise ValueError("limit is how many may hold the lock at once, one or more, and does not go with fair=True")
        self.name, self.wait, self.watched = name, wait, watched
        self.lease = None if watched else lease
        # No question takes longer than a third of the lease. So two thirds of it are left at the grant, however long the wait was.
        self.patience = WATCHED_QUESTION if watched else lease / 3
        self.verb = "FAIRLOCK" if fair else "LOCK"
        self.kind = ["FENCE"] if limit is None else ["LIMIT", limit]
        self.unlocks = 1 if watched else 4  # how often UNLOCK is asked while Redis or the proxy is away: no two sections have one owner
        self.owner = None if watched else f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"

    def _mine(self):
        return ["SELF"] if self.watched else ["OWNER", self.owner, "PX", int(self.lease * 1000)]

    def lock(self, waited):
        """The words of LOCK after `waited` seconds, and whether it is the last time that it is asked."""
        left = math.inf if self.wait is None else self.wait - waited
        block = min(left, self.patience * 3 / 4)
        words = [self.verb, self.name, *self._mine(), *self.kind]
        return (words + ["BLOCK", math.ceil(block * 1000)] if block > 0 else words), block >= left

    def end(self, began):
        """When the wait that has begun then is over."""
        return began + (math.inf if self.wait is None else self.wait)

    def renew(self):
        return ["RENEW", self.name] + ([] if self.watched else self._mine())

    def unlock(self):
        return ["UNLOCK", self.name] + ([] if self.watched else ["OWNER", self.owner])

    def ended_by(self, error):
        """Whether an error to a question means that the lock is not held. Of a lease only Redis can say so."""
        return str(error).startswith(GONE) if isinstance(error, ResponseError) else self.watched

    def pause(self, confirmed):
        """Seconds until the next RENEW; after one without an answer it comes sooner."""
        return self.patience if confirmed else self.patience / 4


Steps = Generator[Any, Any, None]


def acquire(terms: Terms, hold: Hold, clock: Callable[[], float], ended: Callable[[], bool]) -> Steps:
    """Takes the lock, or raises NotAcquired or the error of a question. ended says that nobody waits for it any more."""
    began, trouble = clock(), None
    while not ended():
        sent = clock()
        words, last = terms.lock(sent - began)
        hold._asked = True
        try:
            token = yield words
        except (ConnectionError, TimeoutError):
            # An idle connection may have been closed on the way, or the proxy is away: to ask again joins what was granted.
            if trouble is not None and clock() >= min(trouble + terms.patience, terms.end(began)):
                raise
            trouble = sent if trouble is None else trouble
            yield terms.patience / 100
            continue
        except ResponseError as error:
            hold._asked = UNKNOWN in str(error)
            if str(error).startswith("unknown command"):
                raise ResponseError(f"this is no lockproxy: {error}") from error
            raise
        hold._asked, trouble = False, None
        if token is not None:
            hold.token = 0 if "LIMIT" in terms.kind else int(token)
            hold._answered(sent)
            return
        if last:
            break
    raise NotAcquired(f"{terms.name}: somebody else has had it for {terms.wait} s")


def keep(terms: Terms, hold: Hold, clock: Callable[[], float]) -> Steps:
    """Renews the lease until the lock is lost, or the driver, which is to pause, says that the block is over."""
    confirmed = True
    while not hold.lost:
        if (yield terms.pause(confirmed)):
            return
        sent, confirmed = clock(), False
        try:
            yield terms.renew()
            confirmed = True
            hold._answered(sent)
        except NoReply as error:
            if terms.ended_by(error):
                hold._gone(error)


def release(terms: Terms, hold: Hold) -> Steps:
    """Gives the lock back, if Redis may have granted it. What fails here is no error of the block's: the lease ends by itself."""
    if hold._left or not (hold._granted or hold._asked):
        return
    answered = True
    for turn in range(terms.unlocks):
        if terms.watched and hold.lost:
            return
        if turn > 0:
            # A LOCK without an answer may be carried out after the first UNLOCK, since that comes over another connection.
            yield terms.patience / 20 if hold._granted else terms.patience / 800 * 4 ** turn
        try:
            yield terms.unlock()
            return
        except NoReply as error:
            if terms.ended_by(error) and hold._granted:
                if answered:  # else the UNLOCK before was done
                    hold._gone(error)
                return
            why, answered = error, answered and isinstance(error, ResponseError)
    if hold._granted:
        log.warning("%s was not given back and ends with its lease: %s", terms.name, why)
