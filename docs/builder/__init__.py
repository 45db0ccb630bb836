"""What the documentation is built with: pages of the reference, docstrings and links."""
