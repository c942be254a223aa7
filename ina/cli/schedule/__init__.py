"""``ina schedule``: simulates, explains and runs schedulers, and measures jobs for them."""
