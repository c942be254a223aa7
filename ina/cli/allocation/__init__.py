"""``ina alloc``, ``ina place`` and ``ina route``: allocation decided on files."""
