import redis


def test_one_owner_at_a_time(lockproxy):
    with redis.Redis.from_url(lockproxy) as r:
        assert r.execute_command("LOCK", "orders", "OWNER", "a", "EX", 30) == b"OK"
        assert r.execute_command("LOCK", "orders", "OWNER", "b", "EX", 30) is None
        assert r.execute_command("UNLOCK", "orders", "OWNER", "a") == 1
