"""Draw figure 4: pairs of SS and TS CNNs with otherwise equal settings.

The left panel has a dot per pair: how many points lower the error of TS is after one pass and at
its best epoch. The right panel has learning curves against the training time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from tensorswitch.experiments.figures import BLUE, COLOURS, GREEN, ORANGE, PURPLE, look
from tensorswitch.experiments.records import Record
from tensorswitch.paper.errors import NoResultsError
from tensorswitch.paper.table1 import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["CAPTION", "draw", "pairs"]

CAPTION = (
    "Pairs of SS and TS CNNs with otherwise equal settings. Left: how many points lower the error "
    "of TS is after one pass and at its best epoch. Right: validation error against training time; "
    "labels show the numbers of convolutions + layers above."
)
DOTS = {"mnist": (BLUE, "o"), "cifar10": (ORANGE, "s"), "svhn": (GREEN, "^")}
STYLES = ("-", "--", ":")
CURVES_OF = ("cifar10", "mnist", "svhn", "digits")  # the first with results is drawn


def pairs(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Return SS and TS CNNs of equal settings, trained for more than one epoch.

    Parameters
    ----------
    records : iterable of Record
        Records of any experiments.

    Returns
    -------
    list of tuple of Record
        Pairs of an SS and a TS record.
    """
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        e = record.experiment
        if record.result is not None and e.method in ("cnn-ss", "cnn-ts-lrc") and e.epochs > 1:
            settings = {k: v for k, v in e.settings.items() if k != "method"}
            found.setdefault(repr(settings), {})[e.method] = record
    return [(both["cnn-ss"], both["cnn-ts-lrc"]) for both in found.values() if len(both) == 2]


def draw(records: Iterable[Record]) -> Figure:
    """Draw both panels.

    Parameters
    ----------
    records : iterable of Record
        Records of any experiments.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    NoResultsError
        If there are no pairs of SS and TS CNNs.
    """
    from matplotlib.figure import Figure

    both = pairs(records)
    if not both:
        raise NoResultsError(
            "the results contain no pairs of SS and TS CNNs; run `tensorswitch paper figure4` first"
        )
    with look():
        figure = Figure(figsize=(9.5, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        _scatter(left, both)
        _curves(right, both)
    return figure


def _scatter(axes: Axes, both: list[tuple[Record, Record]]) -> None:
    """Draw the differences of all pairs."""
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.axvline(0, color="#999999", linewidth=0.8)
    for data in dict.fromkeys(ss.experiment.data for ss, _ in both):
        points = [
            (
                100 * (ss.result.one_pass - ts.result.one_pass),
                100 * (ss.result.best - ts.result.best),
            )
            for ss, ts in both
            if ss.experiment.data == data and ss.result is not None and ts.result is not None
        ]
        colour, marker = DOTS.get(data, (PURPLE, "D"))
        xs, ys = zip(*points, strict=True)
        axes.scatter(
            xs,
            ys,
            color=colour,
            marker=marker,
            s=36,
            label=TITLES.get(data, data),
            edgecolor="white",
            zorder=3,
        )
    axes.set(xlabel="error after one pass, SS − TS (points)", ylabel="best error, SS − TS (points)")
    axes.margins(0.15)
    axes.set_title("TS is better above and to the right of zero", fontsize=11)
    axes.legend(framealpha=1)


def _curves(axes: Axes, both: list[tuple[Record, Record]]) -> None:
    """Draw learning curves of up to three pairs."""
    data = next(
        (d for d in CURVES_OF if any(ss.experiment.data == d for ss, _ in both)),
        both[0][0].experiment.data,
    )
    chosen = sorted(
        (p for p in both if p[0].experiment.data == data),
        key=lambda p: (sum(p[0].experiment.convolutions), p[0].experiment.depth),
    )
    if len(chosen) > 3:  # the shallowest, a middle one and the deepest
        chosen = [chosen[0], chosen[len(chosen) // 2], chosen[-1]]
    for pair, style in zip(chosen, STYLES, strict=False):
        for record, kind in zip(pair, ("SS", "TS LRC"), strict=True):
            e, result = record.experiment, record.result
            assert result is not None
            seconds = list(accumulate(epoch["seconds"] for epoch in result.epochs))
            errors = [100 * epoch["validation_error"] for epoch in result.epochs]
            label = f"{kind} {sum(e.convolutions)}+{e.depth}"
            axes.plot(
                seconds,
                errors,
                color=COLOURS[e.method],
                linestyle=style,
                marker="o",
                markersize=3,
                label=label,
            )
    axes.set(xlabel="training time (s)", ylabel="validation error (%)")
    axes.set_xlim(left=0)
    axes.set_title(f"Learning curves on {TITLES.get(data, data)}", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
