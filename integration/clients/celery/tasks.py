"""The tasks of main.py, which its worker runs."""

import os

from celery import Celery

url = f"redis://{os.environ['LOCKPROXY_ADDR']}/0"
app = Celery("tasks", broker=url, backend=url)
app.conf.broker_connection_retry_on_startup = True


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def fails_once(self):
    if self.request.retries < 1:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task
def fails():
    raise ValueError("on purpose")
