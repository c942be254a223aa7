"""Topologies and experiments on Mininet/BMv2 and on the embedded switch."""
