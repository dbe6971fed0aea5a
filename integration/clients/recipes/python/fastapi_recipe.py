"""Ten requests for one order, one while somebody else has its lock, and one that loses the lock while it is served."""
import asyncio

import httpx

import recipe


@recipe.app.post("/orders/{order}/lose")
async def lose(order: str, held=recipe.Depends(recipe.order_lock, scope="function")):
    await recipe.r.execute_command("UNLOCK", f"order:{order}", "FORCE")
    return {"lost": True}


async def main():
    transport = httpx.ASGITransport(app=recipe.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop", timeout=60) as client:
        answers = await asyncio.gather(*(client.post("/orders/7/pay") for _ in range(10)))
        paid = [answer.json().get("paid") for answer in answers]
        assert paid.count(True) == 1, paid
        async with recipe.lock(recipe.r, "order:7"):
            busy = await client.post("/orders/7/pay")
            assert busy.status_code == 409 and busy.headers["Retry-After"] == "2", busy
        lost = await client.post("/orders/8/lose")
        assert lost.status_code == 500, lost
    await recipe.r.aclose()


asyncio.run(main())
print("passed")
