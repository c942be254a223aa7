"""A thin P4Runtime client: entries by name, mastership, nothing about aggregation."""
