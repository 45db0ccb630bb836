"""Errors of the paper's tables and figures."""


class NoResultsError(ValueError):
    """There is nothing to draw yet."""
