"""Compare methods on one problem: the same rows for all, one result file each.

An interrupted comparison can be resumed: finished methods, and finished folds of unfinished ones,
are not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tensorswitch._checks import check_above_zero, check_positive, check_seed
from tensorswitch._files import make_folder, only_one
from tensorswitch.compare import Problem, load_problem
from tensorswitch.compare._problem import Parts
from tensorswitch.datasets import Dataset
from tensorswitch.experiments.fitting import Fit, fit_method
from tensorswitch.experiments.method_records import FoldResult, MethodRecord
from tensorswitch.experiments.methods import COMPARED, Setting, methods_for

__all__ = ["Comparison", "Settings", "compare", "prepare"]

SMALL = 10_000  # with fewer training rows, networks are narrower and steps smaller
MANY_FEATURES, COMPONENTS = 128, 64  # images of more pixels are projected
MODELS = "models"
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
    lr : float or None
        Learning rate of networks; None for one that suits the number of inputs.
    batch_size : int
        Number of rows per step.
    components : int or None
        Number of principal components of images and arrays; None keeps them as they are.
    seed : int
        Seed of the weights and of the order of the rows.
    """

    depth: int
    width: int
    epochs: int
    lr: float | None
    batch_size: int
    components: int | None
    seed: int

    def __post_init__(self) -> None:
        check_positive(
            depth=self.depth, width=self.width, epochs=self.epochs, batch_size=self.batch_size
        )
        if self.lr is not None:
            check_above_zero(lr=self.lr)
        check_seed(self.seed)
        if self.components is not None:
            check_positive(components=self.components)

    @classmethod
    def for_problem(cls, problem: Problem, **given: Any) -> Settings:
        """Choose settings that suit the size of a problem.

        Parameters
        ----------
        problem : Problem
            The problem.
        **given
            Settings to use instead of the chosen ones; None means unset, and ``components=0``
            keeps the pixels.

        Returns
        -------
        Settings
            The settings.
        """
        small = len(problem) < SMALL
        features = 0
        if isinstance(problem.rows, np.ndarray):
            features = math.prod(problem.rows.shape[1:])
        fitting = {
            "depth": 2,
            "width": 64 if small else 256,
            "epochs": 20 if small else 10,
            "lr": None,
            "batch_size": 32 if small else 128,
            "components": None,
            "seed": 0,
        }
        if features > MANY_FEATURES:
            rows = len(problem.splits()[0][0])
            fitting["components"] = min(COMPONENTS, rows - rows // 5)
        chosen = {**fitting, **{key: value for key, value in given.items() if value is not None}}
        if problem.is_table:  # its columns are not projected
            chosen["components"] = None
        chosen["components"] = chosen["components"] or None  # 0 means the pixels themselves
        return cls(**chosen)

    def used_by(self, method: str) -> dict[str, Any]:
        """Return the settings that the results of a method depend on.

        Parameters
        ----------
        method : str
            Name of the method.

        Returns
        -------
        dict
            Values by name.
        """
        unused = {"rr": ("depth", "epochs", "lr", "batch_size")}.get(
            method, ("depth", "width", "epochs", "lr", "batch_size")
        )
        every = asdict(self)
        return {k: v for k, v in every.items() if COMPARED[method].epochs or k not in unused}

    def setting(self, task: str, train: np.ndarray) -> Setting:
        """Return what a method needs to know.

        Parameters
        ----------
        task : str
            The task.
        train : ndarray of shape (rows, features)
            Training inputs.

        Returns
        -------
        Setting
            The setting.
        """
        names = ("depth", "width", "epochs", "batch_size", "lr", "seed")
        return Setting(task, train, **{name: getattr(self, name) for name in names})


@dataclass
class Comparison:
    """Results of several methods on one problem.

    Parameters
    ----------
    problem : Problem
        The problem.
    settings : Settings
        Settings of the methods.
    records : list of MethodRecord
        One record per method.
    folder : Path
        Where they are, with the models of the first split in ``models``.
    reused : int, default=0
        How many of the records were there before.
    """

    problem: Problem
    settings: Settings
    records: list[MethodRecord]
    folder: Path
    reused: int = 0

    @property
    def ranked(self) -> list[MethodRecord]:
        """The records, least error first; those that failed are last."""
        return sorted(self.records, key=lambda r: math.inf if math.isnan(r.error) else r.error)

    @property
    def failed(self) -> list[MethodRecord]:
        """The records of methods that failed."""
        return [r for r in self.records if r.failure is not None]

    def model_path(self, record: MethodRecord) -> Path:
        """Return the path of the model of the first split of a method.

        Parameters
        ----------
        record : MethodRecord
            One of the records.

        Returns
        -------
        Path
            A file for :func:`~tensorswitch.experiments.predictor.load_predictor`; it exists for
            methods of this library.
        """
        return self.folder / MODELS / f"{record.name}.safetensors"


def prepare(
    problem: Problem, folder: Path, methods: Iterable[str] | None, **given: Any
) -> tuple[Settings, list[MethodRecord]]:
    """Check methods and settings, and find what is done already.

    Parameters
    ----------
    problem : Problem
        The problem.
    folder : Path
        Output folder.
    methods : iterable of str or None
        Names of methods; None for all that suit the problem.
    **given
        Settings, as in :meth:`Settings.for_problem`.

    Returns
    -------
    settings : Settings
        The settings.
    records : list of MethodRecord
        A record for each method, with the folds that are done.
    """
    settings = Settings.for_problem(problem, **given)
    chosen = check_methods(methods, problem)
    folds = len(problem.splits())
    records = []
    for method in chosen:
        about = {"data": problem.fingerprint, "task": problem.task, **settings.used_by(method)}
        records.append(MethodRecord.found(folder, problem.name, method, about, folds))
    return settings, records


def compare(
    data: str | Path | Problem | Dataset,
    folder: str | Path | None = None,
    *,
    methods: Iterable[str] | None = None,
    watch: WatchMethod | None = None,
    target: str | None = None,
    **settings: Any,
) -> Comparison:
    """Fit several methods to one problem and test them on the same rows.

    Parameters
    ----------
    data : str, Path, Problem or Dataset
        Name or path of data, or the data.
    folder : str or Path, default=None
        Output folder, ``compare-NAME`` if None. Results found there are reused.
    methods : iterable of str, default=None
        Methods to fit, by default all that suit the problem.
    watch : callable, default=None
        Called as ``watch(method, done, total, note)`` before and after every fit, and after every
        epoch of a network.
    target : str, optional
        Column of a table to predict.
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
    problem = (
        data
        if isinstance(data, Problem)
        else Problem.from_dataset(data)
        if isinstance(data, Dataset)
        else load_problem(data, target=target)
    )
    folder = Path(f"compare-{problem.name}" if folder is None else folder)
    chosen, records = prepare(problem, folder, methods, **settings)
    make_folder(folder / MODELS)
    tell = watch or (lambda *_: None)
    result = Comparison(problem, chosen, records, folder, sum(r.complete for r in records))
    encoded: dict[int, Parts] = {}
    with only_one(folder):
        for record in records:
            tell(record.method, len(record.results), record.folds, record.summary)
            if not record.complete:
                _run(result, record, partial(tell, record.method), encoded)
            tell(record.method, record.folds, record.folds, record.summary)
    return result


def _run(
    result: Comparison,
    record: MethodRecord,
    tell: Callable[[int, int, str], None],
    encoded: dict[int, Parts],
) -> None:
    """Run the folds of a method that are not done, writing its record after each."""
    problem, settings = result.problem, result.settings
    splits = problem.splits()
    record.failure = None
    for fold in range(len(record.results), record.folds):
        if fold not in encoded:
            encoded[fold] = problem.parts(*splits[fold], settings.components)

        def watch(done: int, total: int, note: str, fold: int = fold) -> None:
            tell(fold * total + done, record.folds * total, note)

        try:
            fit = fit_method(
                record.method,
                problem,
                splits[fold],
                partial(settings.setting, problem.task),
                watch=watch,
                parts=encoded[fold],
            )
            if fold == 0 and COMPARED[record.method].own:
                fit.predictor.save(result.model_path(record))
        except Exception as reason:
            record.failure = f"{type(reason).__name__}: {reason}"
            record.write(result.folder)
            return
        record.results.append(_result(fit))
        record.write(result.folder)
        tell(fold + 1, record.folds, record.summary)


def _result(fit: Fit) -> FoldResult:
    names = ("metrics", "fit_seconds", "predict_seconds", "one_pass", "curve", "note", "filters")
    return FoldResult(**{name: getattr(fit, name) for name in names})


def check_methods(methods: Iterable[str] | None, problem: Problem) -> list[str]:
    """Return the methods without duplicates and blanks.

    Parameters
    ----------
    methods : iterable of str or None
        Names; None for all that suit the problem.
    problem : Problem
        The problem.

    Returns
    -------
    list of str
        The methods.

    Raises
    ------
    ValueError
        If there are none, or one is unknown or does not suit the problem.
    """
    fitting = methods_for(problem.task, problem.is_image)
    if methods is None:
        return fitting
    chosen = list(dict.fromkeys(m for m in methods if m))
    if not chosen:
        raise ValueError(f"no methods given; expected some of {', '.join(fitting)}")
    if unknown := [m for m in chosen if m not in COMPARED]:
        raise ValueError(
            f"unknown methods {', '.join(unknown)}; expected some of {', '.join(fitting)}"
        )
    if wrong := [m for m in chosen if m not in fitting]:
        kind = "images" if problem.is_image else f"a {problem.task} of a table"
        raise ValueError(f"{', '.join(wrong)} cannot be used for {kind}")
    return chosen
