"""The module's own write was made; the late write of an earlier holder is refused."""
import recipe

assert recipe.db.execute("SELECT amount FROM stock WHERE item = 'bolts'").fetchone() == (7,)
with recipe.lock(recipe.r, "stock:bolts") as suspended:
    pass
with recipe.lock(recipe.r, "stock:bolts") as held:
    recipe.store("bolts", 9, held.token)
    try:
        recipe.store("bolts", 8, suspended.token)
    except RuntimeError as error:
        assert "a later holder has written" in str(error)
    else:
        raise AssertionError("the late write was made")
    recipe.store("bolts", 10, held.token)
assert recipe.db.execute("SELECT amount FROM stock").fetchall() == [(10,)]
print("passed")
