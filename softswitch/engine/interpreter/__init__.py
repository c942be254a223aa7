"""The interpreter: runs a program straight from its IR; `pipeline` is its door."""
