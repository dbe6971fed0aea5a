"""FastAPI (0.121 or newer): one request for an order at a time. The next one waits two seconds at most.

scope="function" gives the lock back before the response is sent, so that a loss is answered with 500.
"""
import redis.asyncio
from fastapi import Depends, FastAPI, HTTPException
from lockproxy.aio import NotAcquired, lock

app = FastAPI()
r = redis.asyncio.Redis(port=6380)

async def order_lock(order: str):
    try:
        async with lock(r, f"order:{order}", wait=2) as held:
            yield held
    except NotAcquired:
        raise HTTPException(409, "busy", {"Retry-After": "2"})

@app.post("/orders/{order}/pay")
async def pay(order: str, held=Depends(order_lock, scope="function")):
    first = await r.set(f"paid:{order}", 1, nx=True)  # your work
    return {"paid": bool(first)}
