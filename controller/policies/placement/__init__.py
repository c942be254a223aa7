"""Which servers jobs run on: their steady state, and policies that choose by it."""
