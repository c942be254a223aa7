"""The embedded switch: compiles P4 programs for v1model and runs them, under P4Runtime."""
