"""Errors raised by the tables and figures of the paper."""


class NoResultsError(ValueError):
    """Raised if there are no results to draw."""
