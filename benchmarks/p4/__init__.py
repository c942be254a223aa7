"""The compiler and the programs for Tofino, on others' programs, tests and clients, and random ones."""
