"""All policies by name, and what each is asked and simulated with: the registry.

- `registry`: scheduling policies, in families of one speed model each (`families`);
- `allocation`: placement, memory and routing policies, and the settings that they are asked with;
- `setup`: a fresh scheduling policy with its speed model and the interval at which it is asked.

Every kind takes policies from outside, too: ``path.py:Name``, or what an installed package offers.
"""
