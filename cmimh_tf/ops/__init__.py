"""Small pure operations: straight-through signs, shuffles, packed codes."""
