"""From the syntax tree to the IR; `lower` lists the steps."""
