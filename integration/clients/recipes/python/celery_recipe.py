"""Five deliveries of one task, to a worker of four threads: the work is done once."""
from celery.contrib.testing.worker import start_worker

import recipe

with start_worker(recipe.app, pool="threads", concurrency=4, perform_ping_check=False):
    results = [recipe.bill.delay("2026-11") for _ in range(5)]
    said = [result.get(timeout=60) for result in results]
    said.append(recipe.bill.delay("2026-11").get(timeout=60))
    other = recipe.bill.delay("2026-12").get(timeout=60)
assert said.count("done") == 1 and said[-1] == "was done", said
assert set(said) <= {"done", "was done", "another worker does it"}, said
assert other == "done", other
assert recipe.r.lrange("bills", 0, -1) == [b"2026-11", b"2026-12"], recipe.r.lrange("bills", 0, -1)
with recipe.lock(recipe.r, "bill:2027-01"):
    assert recipe.bill("2027-01") == "another worker does it"
print("passed")
