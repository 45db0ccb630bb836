"""The user's tables: from a file to a frame, and from a frame to the inputs of a model."""

from tensorswitch.tables._clean import clean
from tensorswitch.tables._encoder import TableEncoder
from tensorswitch.tables._read import read_table

__all__ = ["TableEncoder", "clean", "read_table"]
