"""Django: one request for an order at a time, over all processes of all machines. The next one waits two seconds at most."""
import functools
import redis
from django.http import JsonResponse
from lockproxy import NotAcquired, lock

r = redis.Redis(port=6380)

def one_at_a_time(view):
    @functools.wraps(view)
    def locked(request, order):
        try:
            with lock(r, f"order:{order}", wait=2):
                return view(request, order)
        except NotAcquired:
            return JsonResponse({"error": "busy"}, status=409, headers={"Retry-After": "2"})
    return locked

@one_at_a_time
def pay(request, order):
    first = r.set(f"paid:{order}", 1, nx=True)  # your work
    return JsonResponse({"paid": bool(first)})
