"""Make processes the ranks of a job: `ina run` starts them, or they find each other and a job."""
