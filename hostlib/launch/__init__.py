"""Make processes the ranks of a job, whether `ina run` or another launcher has started them."""
