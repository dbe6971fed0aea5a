"""Of thirty calls at once ten are under way, and each comes to its turn."""
import concurrent.futures
import threading
import time

import recipe

guard, now, most = threading.Lock(), 0, 0


def request():
    global now, most
    with guard:
        now += 1
        most = max(most, now)
    time.sleep(0.2)
    with guard:
        now -= 1
    return "answer"


with concurrent.futures.ThreadPoolExecutor(30) as threads:
    answers = list(threads.map(lambda _: recipe.call("bank", request), range(30)))
assert answers == ["answer"] * 30, answers
assert most <= 10, most
assert recipe.r.exists("calls:bank") == 0
print("passed")
