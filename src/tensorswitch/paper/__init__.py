"""Reproduce the table and the figures of the paper, each with one call of :func:`reproduce`."""

from tensorswitch.paper._reproduce import Reproduction, reproduce
from tensorswitch.paper.errors import NoResultsError

__all__ = ["NoResultsError", "Reproduction", "reproduce"]
