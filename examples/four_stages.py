"""Train a network in four stages, each marked by the resource that it uses, so that jobs can take turns.

    ina run -np 2 -- python examples/four_stages.py --iterations 20
    ina schedule live --jobs examples/schedule/live.toml    # such jobs under a policy

The program itself is ``hostlib/demos/four_stages.py``.
"""

from hostlib.demos.four_stages import main

if __name__ == "__main__":
    main()
