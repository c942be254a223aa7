"""Replicas of published simulators: their rules to the digit, so that their figures can be checked.

Each has a folder with its policies, its speed models, how its time goes, and its `Family`:

- `muri`: Muri's, with an event loop of its own, for there every event touches every running job;
- `synergy` and `lucid`: Synergy's and Lucid's, which go in steps (`steps`).

What a replica needs of the product it imports; nothing of the product but the list of all policies
(`controller.policies.registry`) imports from here. Constants are those of the public code: they stay when
the product's change.
"""
