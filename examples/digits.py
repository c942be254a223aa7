"""Train a multilayer perceptron on handwritten digits, every gradient summed inside the switch.

    ina run -np 4 -- python examples/digits.py          # four workers
    python examples/digits.py --shards 4                # the same batches in one process

The program itself is ``hostlib/demos/digits.py``.
"""

from hostlib.demos.digits import main

if __name__ == "__main__":
    main()
