"""``ina schedule``: simulate schedulers on traces of jobs side by side, and explain their decisions."""
