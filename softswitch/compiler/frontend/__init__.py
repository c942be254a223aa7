"""From source files to the syntax tree: preprocessor, lexer, recursive-descent parser."""
