"""Applications that use the library from outside, through its public names."""
