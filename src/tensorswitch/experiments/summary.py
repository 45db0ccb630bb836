"""A comparison in words: the table, the conclusion and the legend."""

from __future__ import annotations

import math

from tensorswitch.experiments.comparison import Comparison
from tensorswitch.experiments.method_records import MethodRecord
from tensorswitch.experiments.methods import COMPARED, LEGEND
from tensorswitch.experiments.metrics import number
from tensorswitch.training._history import percent

__all__ = ["cells", "conclusion", "header", "how_measured", "legend", "reason", "seconds"]


def header(comparison: Comparison) -> list[str]:
    """Return the names of the columns of :func:`cells`.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    list of str
        Names of the columns.
    """
    if comparison.problem.class_names is None:
        return ["method", "R²", "RMSE", "MAE", "fit, s", "note"]
    return ["method", "error, %", "±", "one pass", "log-loss", "fit, s", "note"]


def cells(comparison: Comparison) -> list[list[str]]:
    """Return the table of a comparison as text, best method first.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    list of list of str
        One row per method, with the columns of :func:`header`.
    """
    numbers = comparison.problem.class_names is None
    return [_row(record, numbers) for record in comparison.ranked]


def _row(record: MethodRecord, numbers: bool) -> list[str]:
    time = seconds(record.seconds)
    if record.failure is not None or not record.results:
        state = "failed" if record.failure is not None else "not run"
        return [record.label, state, *["–"] * (2 if numbers else 3), time, ""]
    note = record.results[0].note
    if numbers:
        values = [f"{record.mean('r2'):.3f}", *(number(record.mean(m)) for m in ("rmse", "mae"))]
        return [record.label, *values, time, note]
    loss = record.mean("log_loss")
    text = "–" if math.isnan(loss) else f"{loss:.3f}"
    errors = [percent(e) for e in (record.error, record.spread, record.one_pass)]
    return [record.label, *errors, text, time, note]


def seconds(value: float) -> str:
    """Return a time in seconds with two significant digits.

    Parameters
    ----------
    value : float
        The time.

    Returns
    -------
    str
        The text; a dash for NaN.

    Examples
    --------
    >>> from tensorswitch.experiments.summary import seconds
    >>> seconds(0.0312), seconds(1.24), seconds(123.4)
    ('0.03', '1.2', '123')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if value < 0.995 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _score(record: MethodRecord) -> str:
    if "r2" in record.results[0].metrics:
        return f"R² {record.mean('r2'):.3f}"
    return f"{100 * record.error:.1f} % error"


def conclusion(comparison: Comparison) -> str:
    """Return the outcome in one sentence.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    str
        Which method is best, how good it is and how long it took, and the best of the others.
    """
    done = [r for r in comparison.ranked if r.complete and not math.isnan(r.error)]
    if not done:
        return "No method has a result."
    best = done[0]
    text = f"{best.label} is best: {_score(best)} in {seconds(best.seconds)} s"
    own = COMPARED[best.method].own
    rival = next((r for r in done[1:] if COMPARED[r.method].own != own), None)
    if rival is None:
        return text + "."
    whose = rival.label if own else f"{rival.label}, the best of this library,"
    text += f"; {whose} {_score(rival)} in {seconds(rival.seconds)} s"
    spread = math.hypot(*(0.0 if math.isnan(r.spread) else r.spread for r in (best, rival)))
    if rival.error - best.error <= spread:
        text += " (the difference is within the uncertainty)"
    return text + "."


def how_measured(comparison: Comparison) -> str:
    """Return how the errors were measured.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    str
        Number of rows and splits.
    """
    splits = comparison.problem.splits()
    rows = f"{len(splits[0][0]):,} training and {len(splits[0][1]):,} test rows"
    if len(splits) > 1:
        return f"means of {len(splits)}-fold cross-validation, about {rows} each"
    return f"{rows}, the same for all methods"


def legend(comparison: Comparison) -> dict[str, str]:
    """Return the abbreviations that the table uses, in a line each.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    dict of str to str
        Explanations by abbreviation.
    """
    used = {w for r in comparison.records for w in r.label.replace("-", " ").split()}
    return {name: text for name, text in LEGEND.items() if name in used}


def reason(record: MethodRecord) -> str:
    """Return why a method failed, in one line.

    Parameters
    ----------
    record : MethodRecord
        The record of a method that failed.

    Returns
    -------
    str
        Label and reason.
    """
    return f"{record.label} failed: {' '.join(str(record.failure).split())}"
