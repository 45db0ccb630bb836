"""The user's tables: from a file to a frame, and from a frame to the inputs of a model."""

from tensorswitch.tables._clean import Cleaned, clean, number_name
from tensorswitch.tables._encoder import TableEncoder
from tensorswitch.tables._read import is_table, read_table

__all__ = ["Cleaned", "TableEncoder", "clean", "is_table", "number_name", "read_table"]
