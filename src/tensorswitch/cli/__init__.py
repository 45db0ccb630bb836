"""Command-line interface: parses arguments, calls the library and prints results."""

from tensorswitch.cli import (  # noqa: F401 - registers the commands
    _compare,
    _data,
    _models,
)
from tensorswitch.cli._app import app, main

__all__ = ["app", "main"]
