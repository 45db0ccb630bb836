"""SS and every TS method on one data set, side by side: the main job of the command line.

Each method leaves its result in a file of its own, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tensorswitch._files import make_folder, only_one
from tensorswitch.data import Dataset, load
from tensorswitch.experiments.experiment import Experiment, Result
from tensorswitch.experiments.records import Record, run_one
from tensorswitch.experiments.runner import remember

__all__ = ["COMPARED", "Comparison", "Settings", "compare"]

SMALL = 10_000  # training rows below which networks are narrower and steps larger
GRID_ROWS = 5_000  # up to so many rows the depth of a kernel is chosen by validation, else it is KERNEL_DEPTH
KERNEL_DEPTHS, KERNEL_DEPTH, KERNEL_C = (1, 2, 3, 5), 3, (1.0, 10.0, 100.0)
ALPHAS = (0.01, 0.1, 1.0)  # of the mean of the diagonal
COMPARED = ("svm-ss", "svm-ts", "ss", "rr", "ts-lrc", "ts-ibp-lrc", "ts-ibp")
WatchMethod = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """Of the networks; what is None is chosen by the size of the data."""

    depth: int
    width: int
    epochs: int
    lr: float
    batch_size: int
    components: int | None
    seed: int

    def __post_init__(self) -> None:
        Experiment(data="", method="ss", **vars(self))  # which checks them

    @classmethod
    def for_data(cls, data: Dataset, **given: Any) -> Settings:
        small = len(data.train_images) < SMALL
        features, rows = math.prod(data.train_images.shape[1:]), len(data.train_images)
        fitting = {
            "depth": 2,
            "width": 64 if small else 256,
            "epochs": 20 if small else 10,
            "lr": 1e-2 if small else 1e-3,
            "batch_size": 32 if small else 128,
            "components": None if features <= 128 else min(64, rows - rows // 5),
            "seed": 0,
        }
        chosen = {**fitting, **{key: value for key, value in given.items() if value is not None}}
        return cls(
            **{**chosen, "components": chosen["components"] or None}
        )  # 0 is how to ask for the pixels

    def experiment(self, method: str, name: str, data: Dataset) -> Experiment:
        """What is to be done for a method."""
        common: dict[str, Any] = {
            "data": name,
            "method": method,
            "fingerprint": data.fingerprint,
            "components": self.components,
        }
        if method.startswith("svm"):
            small = len(data.train_images) <= GRID_ROWS
            return Experiment(
                **common,
                depths=KERNEL_DEPTHS if small else (KERNEL_DEPTH,),
                Cs=KERNEL_C if small else KERNEL_C[1:2],
            )
        if method == "rr":
            return Experiment(**common, width=self.width, alphas=ALPHAS, tol=1e-3, seed=self.seed)
        # the readout of the uncompressed network has width^depth · inputs weights
        depth = 1 if method == "ts-ibp" and self.width**self.depth > 64**2 else self.depth
        sgd: dict[str, Any] = {
            "epochs": self.epochs,
            "lr": self.lr,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }
        return Experiment(**common, depth=depth, width=self.width, **sgd)


@dataclass
class Comparison:
    data: str
    settings: Settings
    records: list[Record]

    @property
    def results(self) -> list[tuple[str, Result]]:
        """By method; one that failed has no errors, and a note that says why."""
        return [
            (
                r.experiment.method,
                r.result or Result(r.experiment.depth, math.nan, note=f"failed: {r.error}"),
            )
            for r in self.records
        ]

    def relative_time(self, result: Result) -> float:
        """Seconds against an epoch of the SS network."""
        ss = next((r for method, r in self.results if method == "ss"), None)
        return result.seconds / ss.seconds if ss else math.nan


def compare(
    data: str | Path | Dataset,
    folder: str | Path | None = None,
    *,
    methods: Iterable[str] = COMPARED,
    watch: WatchMethod | None = None,
    name: str | None = None,
    **settings: Any,
) -> Comparison:
    """Fit several methods to one data set.

    Parameters
    ----------
    data : str, path or Dataset
        A data set by name, by path, or loaded already.
    folder : path, optional
        Where results go, by default ``compare-NAME``. What is there is not done again.
    methods : iterable of str
        Some of :data:`COMPARED`.
    watch : callable, optional
        Called with the method, epochs done, epochs in all and a note after each epoch.
    name : str, optional
        What the data were loaded by, if that is not their own name.
    **settings
        Those of :class:`Settings`; what is not given is chosen from the size of the data.

    Returns
    -------
    Comparison
    """
    if not isinstance(data, Dataset):
        name = name or str(data)
        data = load(data)
    chosen = Settings.for_data(data, **settings)
    experiments = [chosen.experiment(m, name or data.name, data) for m in check_methods(methods)]
    folder = Path(f"compare-{data.name}" if folder is None else folder)
    make_folder(folder)
    tell = watch or (lambda *_: None)
    remember(data)
    records = []
    with only_one(folder):
        for experiment in experiments:
            method = experiment.method
            tell(method, 0, 1, "")
            record = run_one(experiment, folder, partial(tell, method), filters=True)
            best = math.nan if record.result is None else record.result.best
            note = "failed" if math.isnan(best) else f"test error {100 * best:.2f} %"
            tell(method, 1, 1, note)
            records.append(record)
    return Comparison(data.name, chosen, records)


def check_methods(methods: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys(m for m in methods if m))
    if not chosen:
        raise ValueError(f"no methods are named; known are {', '.join(COMPARED)}")
    if unknown := [m for m in chosen if m not in COMPARED]:
        raise ValueError(f"unknown methods {', '.join(unknown)}; known are {', '.join(COMPARED)}")
    return chosen
