"""Families of policies: one speed model each. `controller.simulator.policies` lists them all."""
