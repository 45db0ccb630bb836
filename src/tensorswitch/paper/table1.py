"""The entries of the paper's table 1, chosen from records of experiments.

For each method and data set the model of least validation error is taken, with its test error after
one pass and at its best epoch. Where a configuration was run with several seeds, errors are means
over them. Time is the mean, over configurations, of the seconds of an epoch (of the whole fit where
there are no epochs) relative to the SS model of the same shape. :mod:`tensorswitch.paper.rendering`
shows the table in four forms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tensorswitch.experiments.experiment import METHODS, Result
from tensorswitch.experiments.records import Record
from tensorswitch.paper import published

__all__ = ["TITLES", "Entry", "Row", "columns", "family_of", "rows"]

TITLES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "digits": "digits",
    "fashion-mnist": "Fashion-MNIST",
}


@dataclass
class Entry:
    """A cell: the error in percent, what it was made by, and the published value."""

    error: float
    spread: float  # from the least to the greatest of the seeds
    depth: str
    records: list[Record]  # one for each seed
    paper: published.Cell | None
    epochs: int | None  # all that were run; None for one pass
    best: bool = False  # the least of its kind of model in its column

    @property
    def difference(self) -> float:
        return math.nan if self.paper is None else self.error - self.paper.error

    @property
    def remark(self) -> str:
        """What sets it apart from the paper's protocol."""
        first = self.records[0].experiment
        remarks = []
        if first.data == published.SEEN_WITH_EXTRA and first.family != "svm" and not first.extra:
            remarks.append("without extra images")
        if (
            self.epochs is not None
            and first.family != "svm"
            and self.epochs < published.EPOCHS.get(first.data, 0)
        ):
            remarks.append(f"{self.epochs} epochs")
        return ", ".join(remarks)


@dataclass
class Row:
    method: str
    one_pass: dict[str, Entry]  # by data
    asymptotic: dict[str, Entry]
    time: float


def rows(records: Iterable[Record]) -> list[Row]:
    """The table; methods without records are left out."""
    records = list(records)
    # A configuration that fails for some of its seeds is not chosen.
    failed = {_configuration(r) for r in records if r.result is None}
    good = [r for r in records if r.result is not None and _configuration(r) not in failed]
    table = []
    for method in [*published.ROWS, *(m for m in METHODS if m not in published.ROWS)]:
        mine = [r for r in good if r.experiment.method == method]
        if not mine:
            continue
        one_pass, asymptotic = {}, {}
        for data in dict.fromkeys(r.experiment.data for r in mine):
            of_data = [r for r in mine if r.experiment.data == data]
            first = _choose(
                of_data,
                lambda r: (r.one_pass_validation, r.one_pass),
                published.ONE_PASS.get(method, {}).get(data),
            )
            longest = [
                r for r in of_data if r.experiment.family == "svm" or r.experiment.epochs > 1
            ]
            last = _choose(
                longest,
                lambda r: (r.best_validation, r.best),
                published.ASYMPTOTIC.get(method, {}).get(data),
                in_the_end=True,
            )
            if first is not None:
                one_pass[data] = first
            if last is not None:
                asymptotic[data] = last
        table.append(Row(method, one_pass, asymptotic, _time(mine, good)))
    _mark_best(table)
    return table


def columns(table: list[Row]) -> list[str]:
    """The data sets, the paper's first."""
    seen = dict.fromkeys(data for row in table for data in (*row.one_pass, *row.asymptotic))
    return [d for d in published.DATA if d in seen] + [d for d in seen if d not in published.DATA]


def _choose(
    records: list[Record],
    errors: Callable[[Result], tuple[float, float]],
    paper: published.Cell | None,
    in_the_end: bool = False,
) -> Entry | None:
    """The configuration of least validation error; in the end, only the seeds that were run longest count."""
    groups: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in sorted(records, key=lambda r: r.experiment.epochs):
        seeds = groups[_configuration(record)]
        if in_the_end and any(
            r.experiment.epochs < record.experiment.epochs for r in seeds.values()
        ):
            seeds.clear()
        seeds[record.experiment.seed] = record
    best: tuple[float, Entry] | None = None
    for seeds in groups.values():
        pairs = [errors(r.result) for r in seeds.values() if r.result is not None]
        validation, test = (100 * sum(p[i] for p in pairs) / len(pairs) for i in (0, 1))
        validation = math.inf if math.isnan(validation) else validation
        if math.isnan(test) or (best is not None and validation >= best[0]):
            continue
        chosen = list(seeds.values())
        epochs = chosen[0].experiment.epochs if in_the_end else None
        spread = 100 * (max(p[1] for p in pairs) - min(p[1] for p in pairs))
        best = (validation, Entry(test, spread, _depth(chosen[0]), chosen, paper, epochs))
    return best and best[1]


def _configuration(record: Record) -> str:
    """What differs in more than the seed and how long it was run."""
    return repr(
        {k: v for k, v in record.experiment.settings.items() if k not in ("seed", "epochs")}
    )


def _depth(record: Record) -> str:
    experiment, result = record.experiment, record.result
    assert result is not None
    return (
        f"{sum(experiment.convolutions)}+{experiment.depth}"
        if experiment.family == "cnn"
        else str(result.depth)
    )


def _time(mine: list[Record], everything: list[Record]) -> float:
    """Against SS on the same data with the same inputs and shape."""

    def shape(record: Record) -> tuple[object, ...]:
        e = record.experiment
        family = "mlp" if e.family == "rr" else e.family
        network = () if family == "svm" else (e.depth, e.width, e.batch_size)
        blocks = (e.convolutions, e.channels) if family == "cnn" else ()
        return (
            family,
            e.data,
            e.extra,
            e.components,
            *network,
            *blocks,
            record.made.get("threads"),
        )

    def least(records: list[Record]) -> dict[tuple[object, ...], float]:
        seconds: dict[tuple[object, ...], float] = {}
        for record in records:
            if record.result is not None:
                seconds[shape(record)] = min(
                    record.result.seconds, seconds.get(shape(record), math.inf)
                )
        return seconds

    ours, reference = least(mine), least([r for r in everything if r.experiment.kind == "ss"])
    ratios = [seconds / reference[key] for key, seconds in ours.items() if key in reference]
    return sum(ratios) / len(ratios) if ratios else math.nan


def _mark_best(table: list[Row]) -> None:
    for family in ("svm", "mlp", "cnn"):
        mine = [r for r in table if family_of(r.method) == family]
        for data in columns(table):
            for column in ("one_pass", "asymptotic"):
                entries = [e for r in mine if (e := getattr(r, column).get(data)) is not None]
                for entry in entries:
                    entry.best = entry.error == min(e.error for e in entries)


def family_of(method: str) -> str:
    return method.split("-")[0] if method.startswith(("svm", "cnn")) else "mlp"
