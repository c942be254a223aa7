"""The registry of all policies, with their inputs and speed models.

- `registry`: scheduling policies, in families of one speed model each (`families`);
- `allocation`: placement, memory and routing policies, and their settings;
- `setup`: a fresh scheduling policy with its speed model and its decision interval.

Every kind also accepts user-defined policies: ``path.py:Name``, or an installed package's.
"""
