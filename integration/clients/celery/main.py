"""Celery through lockproxy, as its broker and where it keeps results: each step prints "ok" and its name."""

import subprocess
import sys

from celery import chain, chord, group

from tasks import add, app, fails, fails_once, total

PATIENCE = 60


def result(promise):
    return promise.get(timeout=PATIENCE)


def job():
    assert result(add.delay(1, 2)) == 3


def countdown():
    assert result(add.apply_async((1, 2), countdown=0.2)) == 3


def priority():
    assert result(add.apply_async((1, 2), priority=3)) == 3


def retry():
    assert result(fails_once.delay()) == 1


def error():
    try:
        result(fails.delay())
    except ValueError as e:
        assert str(e) == "on purpose"
    else:
        raise AssertionError("the error does not come back")


def many():
    assert result(group(add.s(i, i) for i in range(5))()) == [0, 2, 4, 6, 8]


def chords():
    assert result(chord((add.s(i, i) for i in range(5)), total.s())()) == 20


def chains():
    assert result(chain(add.s(1, 2), add.s(3))()) == 6


def control():
    # Who is asked is told by pub/sub.
    for _ in range(PATIENCE):
        if app.control.ping(timeout=1):
            return
    raise AssertionError("the worker does not answer")


def purge():
    assert app.control.purge() == 0


worker = subprocess.Popen(
    [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", "--loglevel", "WARNING"], stdout=sys.stderr)
try:
    for step in (job, countdown, priority, retry, error, many, chords, chains, control, purge):
        step()
        print("ok", step.__name__, flush=True)
finally:
    worker.terminate()
    worker.wait(PATIENCE)
