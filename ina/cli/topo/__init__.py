"""``ina topo`` and ``ina scenario``: topologies, and testbeds made from them."""
