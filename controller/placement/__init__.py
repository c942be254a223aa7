"""Which servers jobs run on: the steady state that they come to, and policies that choose by it."""
