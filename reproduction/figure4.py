"""Draw figure 4: pairs of SS and TS CNNs with otherwise equal settings.

The left panel has a dot per pair: how many points lower the error of TS is after one pass and at
its best epoch, on average over seeds, with their range as error bars. The right panel has learning
curves against the training time of all threads together, since runs may differ in their number. All
epochs of a run count as its median one, since the machine may have been busy during some of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple

from reproduction.experiment import Result
from reproduction.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, NoResultsError, look
from reproduction.published import EPOCHS
from reproduction.records import Record
from reproduction.table1 import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "Pairs of SS and TS CNNs with otherwise equal settings. Left: how many points lower the error "
    "of TS is after one pass and at its best epoch; bars are the range of several seeds. Right: "
    "validation error against training time, hours times threads, of epochs that take as long as "
    "the median one. Labels show the numbers of convolutions + layers above. Hollow symbols are "
    "pairs with fewer epochs than in the paper, in parentheses."
)
DOTS = {"mnist": (BLUE, "o"), "cifar10": (ORANGE, "s"), "svhn": (GREEN, "^")}
STYLES = ("-", "--", ":")
KINDS = (("SS", GREY), ("TS LRC", BLUE))
CURVES_OF = ("cifar10", "mnist", "svhn", "digits")  # the first with results is drawn


class Pair(NamedTuple):
    """Networks of SS and TS of equal settings, a tuple for each seed."""

    long: list[tuple[Record, Record]]  # the longest runs
    first: list[tuple[Record, Record]]  # of any length, for the errors after one pass

    @property
    def data(self) -> str:
        """The data set."""
        return self.long[0][0].experiment.data

    @property
    def depth(self) -> tuple[int, int]:
        """The numbers of convolutions and of layers above them."""
        experiment = self.long[0][0].experiment
        return sum(experiment.convolutions), experiment.depth

    @property
    def is_short(self) -> bool:
        """Whether the networks of the paper were trained for more epochs."""
        return self.long[0][0].experiment.epochs < EPOCHS.get(self.data, 0)

    @property
    def label(self) -> str:
        """The depth, and the number of epochs in parentheses if the paper has more."""
        epochs = f" ({self.long[0][0].experiment.epochs})" if self.is_short else ""
        return "{}+{}".format(*self.depth) + epochs


def pairs(records: Iterable[Record]) -> list[Pair]:
    """Return SS and TS CNNs of equal settings, trained for more than one epoch."""
    shapes: dict[str, dict[str, dict[tuple[int, int], Record]]] = defaultdict(
        lambda: {"cnn-ss": {}, "cnn-ts-lrc": {}}
    )
    for record in records:
        e = record.experiment
        if record.result is not None and e.method in ("cnn-ss", "cnn-ts-lrc"):
            varying = ("method", "seed", "epochs")
            shape = repr({k: v for k, v in e.settings.items() if k not in varying})
            shapes[shape][e.method][e.epochs, e.seed] = record
    found = []
    for both in shapes.values():
        ss, ts = both.values()
        common = sorted(ss.keys() & ts.keys())
        most = max((epochs for epochs, _ in common), default=1)
        if most > 1:
            first = {seed: (ss[epochs, seed], ts[epochs, seed]) for epochs, seed in common}
            long = [(ss[key], ts[key]) for key in common if key[0] == most]
            found.append(Pair(long, list(first.values())))
    return found


def draw(records: Iterable[Record]) -> Figure:
    """Draw both panels."""
    from matplotlib.figure import Figure

    both = pairs(records)
    if not both:
        raise NoResultsError(
            "the results contain no pairs of SS and TS CNNs; "
            "run `python -m reproduction figure4` first"
        )
    with look():
        figure = Figure(figsize=(9.5, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        _scatter(left, both)
        _curves(right, both)
    return figure


def _scatter(axes: Axes, both: list[Pair]) -> None:
    """Draw the differences of all pairs."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.axvline(0, color="#999999", linewidth=0.8)
    named, labels = set(), {}
    for pair in both:
        colour, marker = DOTS.get(pair.data, (PURPLE, "D"))
        one_pass = [100 * (_of(ss).one_pass - _of(ts).one_pass) for ss, ts in pair.first]
        best = [100 * (_of(ss).best - _of(ts).best) for ss, ts in pair.long]
        x, y = mean(one_pass), mean(best)
        axes.errorbar(
            x,
            y,
            xerr=_range(one_pass),
            yerr=_range(best),
            fmt=marker,
            color=colour,
            markersize=6,
            markerfacecolor="white" if pair.is_short else colour,
            elinewidth=1,
            label=None if pair.data in named else TITLES.get(pair.data, pair.data),
            zorder=3,
        )
        labels[x, y] = pair.label
        named.add(pair.data)
    for (x, y), label in labels.items():
        # On the other side if a symbol is in its place.
        hidden = any(0 < a - x < 8 and abs(b - y) < 0.5 for a, b in labels)
        place, side = ((-6, 5), "right") if hidden else ((6, 5), "left")
        axes.annotate(label, (x, y), place, textcoords="offset points", fontsize=8, ha=side)
    axes.set(xlabel="error after one pass, SS − TS (points)", ylabel="best error, SS − TS (points)")
    # Pairs that were trained to the end differ by a point or two, others by more.
    axes.set_yscale("symlog", linthresh=2, linscale=1.5)
    axes.yaxis.set_major_locator(FixedLocator([-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.margins(0.2)
    axes.set_title("TS is better above and to the right of zero", fontsize=11)
    axes.legend(framealpha=1)


def _of(record: Record) -> Result:
    """Return the result of a record that has one."""
    assert record.result is not None
    return record.result


def _range(values: list[float]) -> list[list[float]] | None:
    """Return the error bar from the smallest to the largest value, as distances of the mean."""
    if len(values) == 1:
        return None
    centre = mean(values)
    return [[centre - min(values)], [max(values) - centre]]


def _curves(axes: Axes, both: list[Pair]) -> None:
    """Draw learning curves of up to three pairs."""
    data = next((d for d in CURVES_OF if any(p.data == d for p in both)), both[0].data)
    chosen = sorted((p for p in both if p.data == data), key=lambda p: p.depth)
    if len(chosen) > 3:  # the shallowest, a middle one and the deepest
        chosen = [chosen[0], chosen[len(chosen) // 2], chosen[-1]]
    for pair, style in zip(chosen, STYLES, strict=False):
        for record, (kind, colour) in zip(pair.long[0], KINDS, strict=True):
            epochs = _of(record).epochs
            few = len(epochs) <= 20
            seconds = record.made.get("threads", 1) * median(e["seconds"] for e in epochs)
            axes.plot(
                [seconds / 3600 * (n + 1) for n in range(len(epochs))],
                [100 * epoch["validation_error"] for epoch in epochs],
                color=colour,
                linestyle=style,
                linewidth=1.5 if few else 1,
                marker="o" if few else None,
                markersize=3,
                label="{} {}+{}".format(kind, *pair.depth),
            )
    axes.set(xlabel="training time (core hours)", ylabel="validation error (%)")
    axes.set_xlim(left=0)
    axes.set_title(f"Learning curves on {TITLES.get(data, data)}", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
