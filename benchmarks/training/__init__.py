"""Training and its collectives through the switch, beside gloo: speeds, losses, published tests."""
