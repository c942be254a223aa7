"""Controls and parsers with what they declare: actions, tables, entries, states."""
