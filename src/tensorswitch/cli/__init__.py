"""Command-line interface: parses arguments, calls the library and prints results."""

from tensorswitch.cli import _compare, _data, _models  # noqa: F401 - registers the commands
from tensorswitch.cli._app import app, main

__all__ = ["app", "main"]
