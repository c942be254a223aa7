"""Families of policies: one speed model each. `controller.policies.registry` lists them all."""
