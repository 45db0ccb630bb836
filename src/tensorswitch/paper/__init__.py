"""The paper's table and figures: :func:`reproduce` makes each of them with one call."""

from tensorswitch.paper._reproduce import Reproduction, reproduce
from tensorswitch.paper.errors import NoResultsError

__all__ = ["NoResultsError", "Reproduction", "reproduce"]
