"""How fast everything is that a user waits for: figures with the bounds asked of them."""
