"""What decides: who runs where, on which tree, with which slots."""
