"""``ina alloc``, ``ina place``, ``ina route`` and ``ina explain``: allocation decided on files."""
