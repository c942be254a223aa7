"""Testbeds, on which a topology and its jobs run: so far in virtual time (`virtual`)."""
