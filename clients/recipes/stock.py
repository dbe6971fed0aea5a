"""A late write is refused: the fencing token of a holder that was suspended past its lease is lower than that of the holder after it.

The same SQL works in PostgreSQL. localhost:6380 is a lockproxy.
"""
import sqlite3
import redis
from lockproxy import lock

r = redis.Redis(port=6380)
db = sqlite3.connect("stock.db")
db.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, amount INTEGER, token BIGINT)")

def store(item, amount, token):
    wrote = db.execute("""INSERT INTO stock VALUES (?, ?, ?) ON CONFLICT (item) DO UPDATE
        SET amount = excluded.amount, token = excluded.token WHERE excluded.token >= stock.token""", (item, amount, token))
    db.commit()
    if wrote.rowcount == 0:
        raise RuntimeError(f"{item}: a later holder has written")

with lock(r, "stock:bolts") as held:
    store("bolts", 7, held.token)
