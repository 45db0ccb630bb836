"""The paper's tables and figures."""


class NoResultsError(ValueError):
    """There is nothing to draw yet."""
