"""Choose the entries of table 1 from the records of experiments.

For every method and data set, the model of lowest validation error is chosen, and its test errors
after one pass and at its best epoch are reported. Configurations with several seeds have mean
errors. Time is the time of an epoch (of the whole fit for methods without epochs) relative to the
SS model of the same shape, averaged over configurations, unless times are given that were measured
apart from the experiments. :mod:`reproduction.rendering` formats the table.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reproduction import published
from reproduction.experiment import METHODS, Result, family_of
from reproduction.records import Record

TITLES = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "digits": "digits",
    "fashion-mnist": "Fashion-MNIST",
}


@dataclass
class Entry:
    """A cell of table 1."""

    error: float  # in percent, averaged over the seeds
    spread: float  # of the largest and the smallest error of the seeds
    depth: str
    records: list[Record]  # one per seed
    paper: published.Cell | None
    epochs: int | None  # None for errors after one pass
    best: bool = False  # among models of the same family

    @property
    def difference(self) -> float:
        """Error minus the published error; NaN if there is none."""
        return math.nan if self.paper is None else self.error - self.paper.error

    @property
    def remark(self) -> str:
        """Deviations from the protocol of the paper."""
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
    """A row of table 1: entries by data set."""

    method: str
    one_pass: dict[str, Entry]
    asymptotic: dict[str, Entry]
    time: float  # relative to the SS model of the same shape; NaN if unknown


def rows(records: Iterable[Record], times: Mapping[str, float] = MappingProxyType({})) -> list[Row]:
    """Return the rows of the table in the order of the paper.

    ``times`` of methods, relative to SS, take the place of those from the records.
    """
    records = list(records)
    # Configurations that failed for some of their seeds are never chosen, nor are longer runs of
    # them; a long run that failed says nothing about shorter ones.
    failed: dict[str, int] = {}
    for r in records:
        if r.result is None:
            key = _configuration(r)
            failed[key] = min(r.experiment.epochs, failed.get(key, r.experiment.epochs))
    good = [
        r
        for r in records
        if r.result is not None and r.experiment.epochs < failed.get(_configuration(r), math.inf)
    ]
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
        time = times[method] if method in times else _time(mine, good)
        table.append(Row(method, one_pass, asymptotic, time))
    _mark_best(table)
    return table


def columns(table: list[Row]) -> list[str]:
    """Return the data sets of a table, those of the paper first."""
    seen = dict.fromkeys(data for row in table for data in (*row.one_pass, *row.asymptotic))
    return [d for d in published.DATA if d in seen] + [d for d in seen if d not in published.DATA]


def _choose(
    records: list[Record],
    errors: Callable[[Result], tuple[float, float]],
    paper: published.Cell | None,
    in_the_end: bool = False,
) -> Entry | None:
    """Choose the configuration of lowest validation error, at the end from its longest runs."""
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
    """Return a key of the settings without seed and number of epochs."""
    return repr(
        {k: v for k, v in record.experiment.settings.items() if k not in ("seed", "epochs")}
    )


def _depth(record: Record) -> str:
    """Return the depth as the paper writes it."""
    experiment, result = record.experiment, record.result
    assert result is not None
    return (
        f"{sum(experiment.convolutions)}+{experiment.depth}"
        if experiment.family == "cnn"
        else str(result.depth)
    )


def _time(mine: list[Record], everything: list[Record]) -> float:
    """Return the time relative to SS on the same data with the same inputs and shape."""

    def shape(record: Record) -> tuple[object, ...]:
        e = record.experiment
        family = group_of(e.method)
        network = (e.depths,) if family == "svm" else (e.depth, e.width, e.batch_size)
        blocks = (e.convolutions, e.channels) if family == "cnn" else ()
        threads = record.made.get("threads")
        return (family, e.data, e.extra, e.components, *network, *blocks, threads)

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
    """Mark the lowest error of every family and column."""
    for family in ("svm", "mlp", "cnn"):
        mine = [r for r in table if group_of(r.method) == family]
        for data in columns(table):
            for column in ("one_pass", "asymptotic"):
                entries = [e for r in mine if (e := getattr(r, column).get(data)) is not None]
                for entry in entries:
                    entry.best = entry.error == min(e.error for e in entries)


def group_of(method: str) -> str:
    """Return the part of the table that a method is in: svm, mlp or cnn."""
    family = family_of(method)
    return "mlp" if family == "rr" else family
