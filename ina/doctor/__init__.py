"""What ``ina doctor`` and ``ina host`` find out of machines, and of a job on them."""
