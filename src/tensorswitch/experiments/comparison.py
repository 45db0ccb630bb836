"""Compare SS and all TS methods on one data set.

Every method writes its own result file, so an interrupted comparison can be resumed.
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

SMALL = 10_000  # with fewer training rows, networks are narrower and learning rates larger
GRID_ROWS = 5_000  # with more rows, kernels use KERNEL_DEPTH instead of a validated choice
KERNEL_DEPTHS, KERNEL_DEPTH, KERNEL_C = (1, 2, 3, 5), 3, (1.0, 10.0, 100.0)
ALPHAS = (0.01, 0.1, 1.0)  # fractions of the mean of the Gram matrix's diagonal
COMPARED = ("svm-ss", "svm-ts", "ss", "rr", "ts-lrc", "ts-ibp-lrc", "ts-ibp")
WatchMethod = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """Settings shared by the methods of a comparison.

    Parameters
    ----------
    depth : int
        Number of hidden layers.
    width : int
        Number of units (gates) per layer.
    epochs : int
        Number of passes over the training data.
    lr : float
        Learning rate.
    batch_size : int
        Number of rows per step.
    components : int or None
        Number of principal components of the inputs; None keeps the pixels.
    seed : int
        Seed of the weights and of the order of the rows.
    """

    depth: int
    width: int
    epochs: int
    lr: float
    batch_size: int
    components: int | None
    seed: int

    def __post_init__(self) -> None:
        Experiment(data="", method="ss", **vars(self))  # validates the settings

    @classmethod
    def for_data(cls, data: Dataset, **given: Any) -> Settings:
        """Choose settings that suit the size of a data set.

        Parameters
        ----------
        data : Dataset
            The data set.
        **given
            Settings to use instead of the chosen ones; None means unset, and ``components=0``
            keeps the pixels.

        Returns
        -------
        Settings
            The settings.
        """
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
        chosen["components"] = chosen["components"] or None  # 0 asks for the pixels
        return cls(**chosen)

    def experiment(self, method: str, name: str, data: Dataset) -> Experiment:
        """Return the experiment for one method.

        Parameters
        ----------
        method : str
            One of :data:`COMPARED`.
        name : str
            Name or path under which the data set can be loaded.
        data : Dataset
            The data set.

        Returns
        -------
        Experiment
            The experiment, bound to the data by its fingerprint.
        """
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
        # The readout of an uncompressed network has width^depth · inputs weights.
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
    """Results of several methods on one data set.

    Parameters
    ----------
    data : str
        Name of the data set.
    settings : Settings
        Settings of the methods.
    records : list of Record
        One record per method.
    """

    data: str
    settings: Settings
    records: list[Record]

    @property
    def results(self) -> list[tuple[str, Result]]:
        """Methods and their results; those that failed have NaN errors and the reason as note."""
        return [
            (
                r.experiment.method,
                r.result or Result(r.experiment.depth, math.nan, note=f"failed: {r.error}"),
            )
            for r in self.records
        ]

    def relative_time(self, result: Result) -> float:
        """Return the time of a result relative to one epoch of the SS network.

        Parameters
        ----------
        result : Result
            One of the results.

        Returns
        -------
        float
            Ratio of the times; NaN if there is no SS network among the results.
        """
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
    data : str, Path or Dataset
        Name or path of a data set, or a loaded data set.
    folder : str or Path, default=None
        Output folder, ``compare-NAME`` if None. Results found there are reused.
    methods : iterable of str, default=COMPARED
        Methods to fit.
    watch : callable, default=None
        Called after every epoch as ``watch(method, done, total, note)``.
    name : str, default=None
        Name or path that ``data`` was loaded from, if it differs from ``data.name``.
    **settings
        Fields of :class:`Settings`; missing ones are chosen from the size of the data.

    Returns
    -------
    Comparison
        The results of all methods.

    Raises
    ------
    ValueError
        If a method is unknown, a setting is invalid or another process uses ``folder``.
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
    """Return the methods without duplicates and blanks; raise ValueError if one is unknown."""
    chosen = list(dict.fromkeys(m for m in methods if m))
    if not chosen:
        raise ValueError(f"no methods given; expected some of {', '.join(COMPARED)}")
    if unknown := [m for m in chosen if m not in COMPARED]:
        raise ValueError(
            f"unknown methods {', '.join(unknown)}; expected some of {', '.join(COMPARED)}"
        )
    return chosen
