"""Move a window's packets over sockets: with a clock and waits, which `hostlib.core` does without."""
