"""Twenty want five of an item. A lock that somebody keeps is waited for for two seconds."""
import concurrent.futures
import time

import recipe

recipe.r.set("left:bolt", 5)
with concurrent.futures.ThreadPoolExecutor(20) as threads:
    said = list(threads.map(recipe.reserve, ["bolt"] * 20))
busy = said.count("busy, try again")  # on a machine that stands still
assert said.count("reserved") == min(5, 20 - busy) and said.count("sold out") == 20 - busy - said.count("reserved"), said
with recipe.lock(recipe.r, "stock:bolt"):
    began = time.monotonic()
    assert recipe.reserve("bolt") == "busy, try again"
    assert time.monotonic() - began >= 2
print("passed")
