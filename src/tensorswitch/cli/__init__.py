"""The command line: parses, calls, prints."""

from tensorswitch.cli import _data, _experiments, _networks  # noqa: F401 - importing them adds their commands
from tensorswitch.cli._app import app, main

__all__ = ["app", "main"]
