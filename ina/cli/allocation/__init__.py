"""``ina alloc``, ``ina place``, ``ina route`` and ``ina explain``: who gets what, decided on files."""
