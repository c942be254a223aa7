"""How processes become ranks: the launcher of `ina run` starts them, or they find each other and a job."""
