"""Move a window's packets over sockets; only here the host library blocks and reads a clock."""
