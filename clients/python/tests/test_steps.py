"""What is asked, and what becomes of answers and errors, by a clock of the test's own and without a server."""
import unittest

from redis.exceptions import ConnectionError, ResponseError

from lockproxy import NotAcquired
from lockproxy._hold import Hold, Terms, acquire, keep, release


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Steps(unittest.TestCase):
    def setUp(self):
        self.clock, self.ended = Clock(), False

    def terms(self, **options):
        options = {"wait": 10, "lease": 30, "watched": False, "fair": False, "limit": None} | options
        terms = Terms("k", **options)
        return terms, Hold("k", terms.owner, terms.lease, self.clock)

    def held(self, **options):
        terms, hold = self.terms(**options)
        hold._answered(self.clock())
        return terms, hold

    def end(self, steps, answer=None):
        with self.assertRaises(StopIteration):
            steps.send(answer)

    def test_the_words(self):
        terms, _ = self.terms()
        mine = ["OWNER", terms.owner, "PX", 30000]
        self.assertEqual(terms.lock(0), (["LOCK", "k", *mine, "FENCE", "BLOCK", 7500], False))
        self.assertEqual(terms.lock(8), (["LOCK", "k", *mine, "FENCE", "BLOCK", 2000], True))
        self.assertEqual(terms.lock(10), (["LOCK", "k", *mine, "FENCE"], True))
        self.assertEqual(terms.renew(), ["RENEW", "k", *mine])
        self.assertEqual(terms.unlock(), ["UNLOCK", "k", "OWNER", terms.owner])
        watched, _ = self.terms(watched=True, fair=True, wait=None)
        self.assertEqual(watched.lock(1000), (["FAIRLOCK", "k", "SELF", "FENCE", "BLOCK", 3750], False))
        self.assertEqual((watched.renew(), watched.unlock()), (["RENEW", "k"], ["UNLOCK", "k"]))
        limited, _ = self.terms(limit=5, wait=0)
        self.assertEqual(limited.lock(0), (["LOCK", "k", "OWNER", limited.owner, "PX", 30000, "LIMIT", 5], True))
        for options in ({"limit": 0}, {"limit": 2.5}, {"limit": 5, "fair": True}):
            with self.assertRaises(ValueError):
                self.terms(**options)

    def test_a_lease_counts_from_before_the_answered_question(self):
        terms, hold = self.terms(wait=None)
        steps = acquire(terms, hold, self.clock, lambda: self.ended)
        next(steps)
        self.clock.now += 7.5
        steps.send(None)  # asked again
        self.clock.now += 2
        self.end(steps, 42)
        self.assertEqual(hold.token, 42)
        self.clock.now += 27.9
        self.assertFalse(hold.lost)
        self.clock.now += 0.2
        self.assertTrue(hold.lost)
        hold._answered(self.clock())
        self.assertTrue(hold.lost)

    def test_the_end_of_the_wait(self):
        terms, hold = self.terms(wait=0)
        steps = acquire(terms, hold, self.clock, lambda: self.ended)
        self.assertNotIn("BLOCK", next(steps))
        with self.assertRaises(NotAcquired):
            steps.send(None)

    def test_questions_without_an_answer(self):
        """The first is asked again in any case; after that it goes on for a third of the lease, and no longer than the wait."""
        for wait, most in ((None, 10), (2, 2), (0, 0)):
            terms, hold = self.terms(wait=wait)
            steps = acquire(terms, hold, self.clock, lambda: self.ended)
            began = self.clock.now
            self.assertIsInstance(next(steps), list)
            with self.assertRaises(ConnectionError):
                while True:
                    self.assertIsInstance(steps.throw(ConnectionError("closed")), float)
                    self.clock.now += 0.5
                    self.assertIsInstance(next(steps), list)
            self.assertAlmostEqual(self.clock.now - began, max(most, 0.5), delta=0.5)

    def test_a_wait_that_has_ended(self):
        """It asks no more, and gives back what may have been granted: nothing if the last answer was nil."""
        for answer, given_back in ((42, True), (None, False), (ConnectionError("closed"), True),
                                   (ResponseError("the reply to this LOCK was lost and Redis cannot be asked"), True),
                                   (ResponseError("WRONGTYPE"), False)):
            with self.subTest(answer=answer):
                terms, hold = self.terms(wait=None)
                self.ended = False
                steps = acquire(terms, hold, self.clock, lambda: self.ended)
                next(steps)
                self.ended = True
                try:
                    if isinstance(answer, Exception):
                        steps.throw(answer)
                        next(steps)
                    else:
                        steps.send(answer)
                except (StopIteration, NotAcquired, ResponseError):
                    pass
                self.assertEqual(next(release(terms, hold), None), terms.unlock() if given_back else None)

    def test_unlock_of_what_may_have_been_granted(self):
        """NOTHELD is not the last word: the LOCK without an answer may be carried out after it."""
        terms, hold = self.terms()
        next(acquire(terms, hold, self.clock, lambda: False))
        steps, asked = release(terms, hold), []
        with self.assertRaises(StopIteration):
            step = next(steps)
            while True:
                asked.append(step)
                step = steps.throw(ResponseError("NOTHELD this owner")) if isinstance(step, list) else next(steps)
        self.assertEqual(asked, [terms.unlock(), 0.05, terms.unlock(), 0.2, terms.unlock(), 0.8, terms.unlock()])

    def test_no_lockproxy(self):
        terms, hold = self.terms()
        steps = acquire(terms, hold, self.clock, lambda: self.ended)
        next(steps)
        with self.assertRaisesRegex(ResponseError, "^this is no lockproxy: unknown command 'LOCK'"):
            steps.throw(ResponseError("unknown command 'LOCK', with args beginning with: 'k' "))
        self.assertEqual(list(release(terms, hold)), [])

    def test_renewals(self):
        for error, watched, lost in ((ResponseError("NOTHELD this owner"), False, True), (ResponseError("LOCKLOST 'k'"), True, True),
                                     (ResponseError("ERR upstream unavailable"), False, False), (ConnectionError("closed"), False, False),
                                     (ResponseError("ERR upstream unavailable"), True, False), (ConnectionError("closed"), True, True)):
            with self.subTest(error=str(error), watched=watched):
                terms, hold = self.held(watched=watched)
                steps = keep(terms, hold, self.clock)
                self.assertEqual(next(steps), terms.patience)
                self.assertEqual(steps.send(False), terms.renew())
                if lost:
                    with self.assertRaises(StopIteration):
                        steps.throw(error)
                else:
                    self.assertEqual(steps.throw(error), terms.patience / 4)  # sooner than after an answer
                    self.end(steps, True)  # the block is over
                self.assertEqual(hold.lost, lost)

    def test_unlock(self):
        terms, hold = self.held()
        steps = release(terms, hold)
        next(steps)
        self.end(steps, 1)
        self.assertFalse(hold.lost)
        steps = release(terms, hold)
        next(steps)
        with self.assertRaises(StopIteration):
            steps.throw(ResponseError("NOTHELD this owner"))
        self.assertTrue(hold.lost)

    def test_unlock_again_after_a_lost_reply(self):
        """NOTHELD then says that the first was done, and nothing of a loss."""
        terms, hold = self.held()
        steps = release(terms, hold)
        next(steps)
        self.assertEqual(steps.throw(ConnectionError("closed")), terms.patience / 20)
        self.assertEqual(next(steps), terms.unlock())
        with self.assertRaises(StopIteration):
            steps.throw(ResponseError("NOTHELD this owner"))
        self.assertFalse(hold.lost)

    def test_unlock_that_is_never_answered(self):
        terms, hold = self.held()
        steps, asked = release(terms, hold), 1
        next(steps)
        with self.assertLogs("lockproxy", "WARNING"), self.assertRaises(StopIteration):
            while True:
                steps.throw(ConnectionError("closed"))
                next(steps)
                asked += 1
        self.assertEqual(asked, 4)

    def test_a_lock_that_is_left(self):
        terms, hold = self.held()
        hold.leave()
        self.assertEqual(list(release(terms, hold)), [])


if __name__ == "__main__":
    unittest.main()
