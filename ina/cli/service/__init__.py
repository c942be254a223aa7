"""``ina controller``, and the commands that send requests to a running controller."""
