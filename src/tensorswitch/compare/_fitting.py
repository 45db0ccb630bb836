"""Fit a learner to some rows of a problem, and measure it on others."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, ShuffleSplit, StratifiedShuffleSplit

from tensorswitch._checks import check_positive, check_seed
from tensorswitch._files import make_folder, only_one
from tensorswitch.compare._learners import LEARNERS, Learner, build, innermost, named
from tensorswitch.compare._metrics import OF_THRESHOLDS, metric_name
from tensorswitch.compare._predictor import Predictor, RawImages, can_save, load_predictor, measure
from tensorswitch.compare._problem import Parts, Problem
from tensorswitch.compare._splits import Split, once, parsed
from tensorswitch.persistence import MODEL

MANY_FEATURES, COMPONENTS = 128, 64  # images of more pixels are projected
KERNEL_ROWS = 20_000  # beyond which kernel ridge takes many minutes
VALIDATION, FEWEST, MOST = 0.2, 50, 5_000  # share of the rows for a search, and for how many


@dataclass
class Result:
    """What was measured of one fit: measures on the test rows, times, and remarks."""

    metrics: dict[str, Any]
    fit_seconds: float
    predict_seconds: float
    note: str = ""


def default_components(problem: Problem, components: int | None) -> int | None:
    """Return how many principal components rows are projected on; given as 0, none."""
    if problem.is_table or components == 0:  # columns are not projected
        return None
    if components is not None:
        check_positive(components=components)
        return components
    rows = len(problem.splits()[0][0])
    many = math.prod(np.shape(problem.rows)[1:]) > MANY_FEATURES
    return min(COMPONENTS, rows - rows // 5) if many else None


def fit_learner(
    name: str,
    learner: Learner,
    problem: Problem,
    split: Split,
    parts: Parts,
    given: Any,
    seed: int,
    goal: str = "error",
) -> tuple[Predictor, Result]:
    """Fit a learner to the training rows of a split, and measure it on the others.

    With a goal of ``OF_THRESHOLDS`` and two classes, these choose from which probability the rarer
    one is predicted.
    """
    if learner.images:
        raw: Any = RawImages()
        x, test = (raw(problem.take(places)) for places in split)
        parts = parts._replace(train=x, test=test, encoder=raw)
    x, y = parts.train, problem.target[split[0]]
    notes = []
    if learner.most_rows is not None and len(y) > learner.most_rows:
        notes.append(f"learned from {learner.most_rows:,} of {len(y):,} rows")
        chosen = np.sort(np.random.default_rng(0).permutation(len(y))[: learner.most_rows])
        x, y = x[chosen], y[chosen]
    model = build(learner, problem, len(y), given, seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults that do not converge are the user's defaults
        if found := _search(learner, model, x, y, given):
            notes.insert(0, ", ".join(f"{k} {v:g}" for k, v in found.items()))
        model.fit(x, y)
    seconds = time.perf_counter() - start
    about: dict[str, Any] = {"target_written": problem.target_written}
    if isinstance(problem.rows, np.ndarray):
        about |= {"row_shape": problem.rows.shape[1:], "row_type": str(problem.rows.dtype)}
    columns = problem.target_name, problem.id_name
    predictor = Predictor(model, parts.encoder, name, problem.class_names, *columns, **about)
    truth = problem.target[split[1]]
    metrics, predict_seconds, remark = measure(predictor, parts.test, truth)
    if goal in OF_THRESHOLDS and len(problem.class_names or ()) == 2:
        metrics |= predictor.choose_threshold(parts.test, truth, goal)
    note = "; ".join(filter(None, [*notes, remark]))
    return predictor, Result(metrics, seconds, predict_seconds, note)


def _search(
    learner: Learner, model: Any, x: np.ndarray, y: np.ndarray, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Choose and set parameters by validation; return them if there was a choice."""
    grid, counts = learner.search, np.bincount(y) if y.dtype.kind == "i" else None
    if not grid or not FEWEST <= len(y) <= MOST or {*grid} & {*given}:
        return {}
    if counts is not None and 1 in counts:
        return {}  # a class of one row could only be held out
    splitter = ShuffleSplit if counts is None else StratifiedShuffleSplit
    prefix = "" if innermost(model) is model else f"{model.steps[-1][0]}__"
    values = {f"{prefix}{name}": list(some) for name, some in grid.items()}
    cv = splitter(1, test_size=VALIDATION, random_state=0)
    search = GridSearchCV(model, values, cv=cv, refit=False, error_score="raise").fit(x, y)
    model.set_params(**search.best_params_)
    return {name.removeprefix(prefix): value for name, value in search.best_params_.items()}


def _check_place(path: Path, target: str) -> None:
    """Raise if a file is not a model of this target, which would be lost."""
    if not path.exists():
        return
    try:
        there = load_predictor(path).target_name
    except ValueError as error:
        raise ValueError(f"{path} would be replaced, but {error}; choose another folder") from error
    if there != target:
        what = f"{path} is a model of {there!r}, which would be lost"
        raise ValueError(f"{what}; choose another folder for {target!r}, or delete it")


def class_factors(class_weight: Any, problem: Problem) -> Any:
    """Return scikit-learn's ``class_weight`` for "balanced" or weights by name of the class."""
    names = problem.class_names
    if names is None:
        raise ValueError(f"{problem.name} is a regression, so there are no classes to weigh")
    if class_weight == "balanced":
        return class_weight
    if strangers := [name for name in class_weight if name not in names]:
        raise ValueError(f"class_weight of {strangers[0]!r}; classes are {', '.join(names)}")
    return {i: float(class_weight.get(name, 1.0)) for i, name in enumerate(names)}


def usual_learner(problem: Problem) -> str:
    """Return the learner for a problem: convolutions of images, kernels of up to 20,000 rows."""
    if problem.is_image and problem.task == "classification":
        return "conv-rr"
    return "kernel-ridge" if len(problem) <= KERNEL_ROWS else "rr"


def only_class(results: Sequence[Result], names: Sequence[str] | None) -> str:
    """Say which class is predicted for all test rows, if that is wrong for some; "" if several."""
    if names is None or not results:
        return ""
    counts = np.sum([result.metrics["confusion"] for result in results], axis=0)
    predicted = np.flatnonzero(counts.sum(0))
    several = np.count_nonzero(counts.sum(1)) > 1
    return f"always {names[predicted[0]]!r}" if len(predicted) == 1 and several else ""


def train(
    problem: Problem,
    learner: Any = None,
    folder: str | Path | None = None,
    *,
    holdout: bool = False,
    split: str | None = None,
    metric: str | None = None,
    class_weight: str | Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    components: int | None = None,
    seed: int = 0,
) -> tuple[Predictor, Result]:
    """Fit one learner, measure it on rows that are held out, and fit it again to all rows.

    Intervals, calibrated probabilities and thresholds are those of the rows that were held out.

    Parameters
    ----------
    problem : Problem
        The problem.
    learner : str or estimator, optional
        A key of :data:`LEARNERS`, or a scikit-learn estimator. By default :func:`usual_learner`.
    folder : str or Path, optional
        Where to write ``model.safetensors``, for learners of this library.
    holdout : bool, default=False
        Whether to keep the model that has not seen the rows that were held out.
    split : str, optional
        How rows are held out, as in :func:`compare`.
    metric : str, optional
        "balanced-accuracy" or "f1" choose the probability from which the rarer one of two classes
        is predicted, on the rows that were held out.
    class_weight : "balanced" or mapping of str to float, optional
        Factors on the weights of rows, by name of the class.
    settings : mapping of str to object, optional
        Parameters of the estimator.
    components : int, optional
        Principal components, as in :func:`compare`.
    seed : int, default=0
        Seed of the learner.

    Returns
    -------
    predictor : Predictor
        The fitted pipeline.
    result : Result
        Measures on the rows that were held out.

    Examples
    --------
    >>> from tensorswitch.compare import load_problem, train
    >>> predictor, result = train(load_problem("digits"), "rr", settings={"gates": 64})
    >>> result.metrics["accuracy"] > 0.95
    True
    """
    learner = usual_learner(problem) if learner is None else learner
    goal = metric_name(metric, problem.task)
    name = learner if isinstance(learner, str) else type(innermost(learner)).__name__
    known = named(name, problem) if isinstance(learner, str) else Learner.of(name, learner)
    seed, given = check_seed(seed), dict(settings or {})
    if class_weight is not None:
        given["class_weight"] = class_factors(class_weight, problem)
    if folder is not None and not can_save(build(known, problem, len(problem), given, seed)):
        own = ", ".join(n for n, one in LEARNERS.items() if one.own and problem.task in one.tasks)
        what = f"{known.label} cannot be saved without pickle; compare it with others"
        raise TypeError(f"{what}, or use one of this library: {own}")
    components = default_components(problem, components)
    divided = once(problem, split)
    if parsed(split)[0] == "group":
        problem = problem.without(parsed(split)[1])

    def fit(split: Split) -> tuple[Predictor, Result]:
        parts = problem.parts(*split, components)
        return fit_learner(name, known, problem, split, parts, given, seed, goal)

    with ExitStack() as held:
        if folder is not None:
            make_folder(Path(folder))
            held.enter_context(only_one(Path(folder)))
            _check_place(Path(folder) / MODEL, problem.target_name)
        predictor, result = fit(divided)
        if not holdout:
            every, first = np.arange(len(problem)), predictor
            predictor = fit((every, every[:1]))[0]  # measures of this fit are not used
            predictor.interval, predictor.calibration = first.interval, first.calibration
            predictor.threshold = first.threshold
        if folder is not None:
            predictor.save(Path(folder) / MODEL)
    return predictor, result
