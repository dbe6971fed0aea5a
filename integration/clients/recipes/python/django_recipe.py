"""Ten requests for one order, and one while somebody else has the order's lock."""
import concurrent.futures

import django
from django.conf import settings

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"])
django.setup()

from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

import recipe  # noqa: E402

inside = []


@recipe.one_at_a_time
def look(request, order):
    inside.append(order)
    answer = recipe.JsonResponse({"alone": inside == [order]})
    recipe.r.get("something")
    inside.remove(order)
    return answer


urlpatterns = [path("orders/<order>/pay", recipe.pay), path("orders/<order>/look", look)]


def post(what):
    return Client().post(f"/orders/7/{what}")


with concurrent.futures.ThreadPoolExecutor(10) as threads:
    paid = [answer.json().get("paid") for answer in threads.map(post, ["pay"] * 10)]
    assert paid.count(True) == 1, paid
    alone = [answer.json().get("alone") for answer in threads.map(post, ["look"] * 10) if answer.status_code == 200]
    assert alone and all(alone), alone
with recipe.lock(recipe.r, "order:7"):
    busy = post("pay")
    assert busy.status_code == 409 and busy.headers["Retry-After"] == "2", busy
print("passed")
