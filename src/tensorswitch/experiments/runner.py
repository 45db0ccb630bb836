"""Run one experiment: prepare the data as in the paper, fit the method and test it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensorswitch import estimators
from tensorswitch._random import seeded
from tensorswitch.data import load
from tensorswitch.datasets import NAMES, Dataset, Split
from tensorswitch.datasets._dataset import validation_split
from tensorswitch.estimators import TSKernelRidgeClassifier, TSKernelSVC, kernel_svc_grid
from tensorswitch.experiments.experiment import SGD, Experiment, Result
from tensorswitch.experiments.filters import first_filters, first_weight
from tensorswitch.linear import Copies, draw_gates
from tensorswitch.linear import solve as solve_ridge
from tensorswitch.models import Network, cnn, mlp
from tensorswitch.training import Epoch, Learner, Rows, train

__all__ = ["Watch", "remember", "run", "untrained", "with_fingerprints"]

Watch = Callable[[int, int, str], None]  # finished epochs, total epochs, note


def run(
    experiment: Experiment,
    folder: Path | None = None,
    watch: Watch | None = None,
    device: str = "cpu",
    *,
    filters: bool = True,
) -> Result:
    """Run an experiment.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    folder : Path, default=None
        Where networks keep their checkpoints, from which an interrupted run resumes.
    watch : callable, default=None
        Called after every epoch as ``watch(done, total, note)``.
    device : str, default="cpu"
        Device for training.
    filters : bool, default=True
        Whether the result includes the weights of the first hidden units in pixels.

    Returns
    -------
    Result
        Errors, times and learning curves.

    Raises
    ------
    ValueError
        If the data cannot be loaded, do not match ``experiment.fingerprint`` or do not suit the
        method.
    tensorswitch.training.DivergedError
        If the loss of a network is no longer finite.
    """
    data = _data(experiment)
    if experiment.family == "conv-rr":
        return _convolution(experiment, data)
    split = _prepared(data, experiment.components, experiment.family != "cnn")
    if experiment.family == "svm":
        return _svm(experiment, split)
    if experiment.family == "kernel-ridge":
        return _kernel_ridge(experiment, split)
    if experiment.family == "rr":
        return _ridge(experiment, split, len(data.class_names))
    return _network(experiment, split, len(data.class_names), folder, watch, device, filters)


def with_fingerprints(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Bind experiments to the present content of their data.

    Parameters
    ----------
    experiments : iterable of Experiment
        Experiments; all of their data sets are loaded once.

    Returns
    -------
    list of Experiment
        The same experiments with fingerprints, and with absolute paths, so that processes in other
        folders find the data.
    """
    found: dict[tuple[str, bool, str | None], str] = {}
    bound = []
    for experiment in experiments:
        key = (experiment.data, experiment.extra, experiment.target)
        if key not in found:
            data = load(experiment.data, extra=experiment.extra, target=experiment.target)
            found[key] = data.fingerprint
            remember(data)
        place = (
            experiment.data if experiment.data in NAMES else str(Path(experiment.data).resolve())
        )
        bound.append(replace(experiment, data=place, fingerprint=found[key]))
    return bound


# Consecutive experiments mostly use the same data, so the last data set (by fingerprint) is kept.
_recent_data: dict[str, Dataset] = {}
_recent_split: dict[tuple[str, int | None, bool], Split] = {}


def remember(data: Dataset) -> None:
    """Cache a data set for the next experiments of this process.

    Parameters
    ----------
    data : Dataset
        The data set. It replaces the one cached before.
    """
    _recent_data.clear()
    _recent_data[data.fingerprint] = data


def _data(experiment: Experiment) -> Dataset:
    """Return the data set of an experiment, checking its fingerprint."""
    if experiment.fingerprint not in _recent_data:
        data = load(experiment.data, extra=experiment.extra, target=experiment.target)
        if experiment.fingerprint not in (None, data.fingerprint):
            raise ValueError(
                f"the data {experiment.data} have changed: their fingerprint is "
                f"{data.fingerprint}, but the experiment expects {experiment.fingerprint}"
            )
        remember(data)
        return data
    return _recent_data[experiment.fingerprint]


def _prepared(data: Dataset, components: int | None, flat: bool) -> Split:
    """Return the prepared parts of a data set, caching the last ones."""
    key = (data.fingerprint, components, flat)
    if key not in _recent_split:
        _recent_split.clear()
        _recent_split[key] = data.protocol(components, flat=flat)
    return _recent_split[key]


def _network(
    experiment: Experiment,
    split: Split,
    classes: int,
    folder: Path | None,
    watch: Watch | None,
    device: str,
    filters: bool,
) -> Result:
    """Train and test a network."""
    with seeded(experiment.seed):
        network = _build(experiment, split, classes)
    sgd = {name: getattr(experiment, name) for name in SGD}
    learner = Learner(network, device=device, **sgd)

    def after(epoch: Epoch) -> None:
        if watch is not None:
            watch(epoch.epoch, experiment.epochs, f"test error {100 * epoch.test_error:.2f} %")

    parts: dict[str, Any] = {
        "validation": Rows.from_numpy(split.validation, split.validation_labels),
        "test": Rows.from_numpy(split.test, split.test_labels),
    }
    rows = Rows.from_numpy(split.train, split.train_labels)
    place = folder if experiment.epochs > 1 else None  # a single epoch needs no checkpoint
    notes = experiment.settings
    if experiment.fingerprint:  # the data may have moved since, as in the name of the experiment
        notes["data"] = Path(experiment.data).name
    history = train(
        learner, rows, epochs=experiment.epochs, folder=place, notes=notes, after=after, **parts
    )
    first, best = history.epochs[0], history.best
    return Result(
        experiment.depth,
        min(e.seconds for e in history.epochs),
        first.test_error,
        first.validation_error,
        best.test_error,
        best.validation_error,
        best.epoch,
        [asdict(e) for e in history.epochs],
        first_filters(network, split.preparation.basis) if filters else None,
        list(split.preparation.mean.shape) if split.preparation.mean.ndim == 3 else None,
    )


def _build(experiment: Experiment, split: Split, classes: int) -> Network:
    """Build the network of an experiment."""
    shape: dict[str, Any] = {
        "kind": experiment.kind,
        "depth": experiment.depth,
        "width": experiment.width,
    }
    if experiment.family == "mlp":
        return mlp(split.train.shape[1], classes, **shape)
    if split.train.ndim != 4:
        raise ValueError(
            f"a CNN needs images, but {experiment.data} has rows of {split.train.shape[1]} features"
        )
    blocks: dict[str, Any] = {
        "convolutions": experiment.convolutions,
        "channels": experiment.channels,
    }
    return cnn(split.train.shape[1], split.train.shape[2:], classes, **shape, **blocks)


def _ridge(experiment: Experiment, split: Split, classes: int) -> Result:
    """Solve the readout in one pass."""
    generator = torch.Generator().manual_seed(experiment.seed)
    copies = Copies(draw_gates(split.train.shape[1], [experiment.width], generator))
    x, y = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
    targets = 2 * torch.nn.functional.one_hot(y, classes).to(x.dtype) - 1
    start = time.perf_counter()
    mean = copies.mean_square(copies.rows(x)) or 1.0  # 0 if all inputs are zero
    alphas = [a * mean for a in experiment.alphas]
    solution = solve_ridge(x, targets, copies, alphas, tol=experiment.tol)
    seconds = time.perf_counter() - start

    def error(x: np.ndarray, labels: np.ndarray) -> float:
        if not len(x):
            return math.nan
        outputs = solution.outputs(copies, copies.rows(torch.from_numpy(x)))
        return _error(outputs.argmax(1).numpy(), labels)

    test, validation = (
        error(split.test, split.test_labels),
        error(split.validation, split.validation_labels),
    )
    return Result(
        1,
        seconds,
        test,
        validation,
        test,
        validation,
        note=f"λ = {solution.alpha / mean:.2g} × mean",
    )


def _svm(experiment: Experiment, split: Split) -> Result:
    """Fit a kernel SVM to rows of unit length, choosing depth and C by validation error."""
    depth, C, kind = experiment.depths[0], experiment.Cs[0], experiment.kind
    start = time.perf_counter()
    if len(experiment.depths) * len(experiment.Cs) > 1 and len(split.validation):
        rows = slice(experiment.trial_rows)
        trial = (
            split.train[rows],
            split.train_labels[rows],
            split.validation,
            split.validation_labels,
        )
        errors = kernel_svc_grid(
            *trial, kinds=[kind], depths=experiment.depths, Cs=experiment.Cs, memory_gb=8
        )
        _, depth, C = min(errors, key=lambda k: (errors[k], k))
    before = time.perf_counter()
    model = TSKernelSVC(kind, depth, C, normalize=True, bias=False, memory_gb=8).fit(
        split.train, split.train_labels
    )
    seconds = time.perf_counter() - before
    # Without a coefficient at its bound, any larger C gives the same machine.
    note = f"C = {C:g}" + (" or larger" if np.abs(model.pair_coef_).max() < C else "")
    note += f", chosen in {before - start:.0f} s" if before - start > 1 else ""
    validation = (
        _error(model.predict(split.validation), split.validation_labels)
        if len(split.validation)
        else math.nan
    )
    return Result(
        depth,
        seconds,
        best=_error(model.predict(split.test), split.test_labels),
        best_validation=validation,
        note=note,
    )


def _kernel_ridge(experiment: Experiment, split: Split) -> Result:
    """Fit kernel ridge regression, which chooses everything by leave-one-out error."""
    start = time.perf_counter()
    model = TSKernelRidgeClassifier(random_state=experiment.seed)
    model.fit(split.train, split.train_labels)
    seconds = time.perf_counter() - start
    test = _error(model.predict(split.test), split.test_labels)
    validation = math.nan
    if len(split.validation):
        validation = _error(model.predict(split.validation), split.validation_labels)
    note = f"{model.kernel_} kernel of depth {model.depth_}"
    return Result(model.depth_, seconds, best=test, best_validation=validation, note=note)


def _convolution(experiment: Experiment, data: Dataset) -> Result:
    """Fit the convolution in one pass to images as they are."""
    if data.train_images.ndim != 4:
        raise ValueError(f"conv-rr needs images, but {data.name} has rows of features")
    # The split of the protocol, without its preprocessing.
    images = data.train_images.transpose(0, 2, 3, 1)
    train, validation = validation_split(len(images))
    start = time.perf_counter()
    model = estimators.TSConvRidgeClassifier(random_state=experiment.seed)
    model.fit(images[train], data.train_labels[train])
    seconds = time.perf_counter() - start
    test = _error(model.predict(data.test_images.transpose(0, 2, 3, 1)), data.test_labels)
    other = math.nan
    if len(validation):
        other = _error(model.predict(images[validation]), data.train_labels[validation])
    return Result(1, seconds, test, other, test, other)


def untrained(experiment: Experiment, features: int, classes: int) -> np.ndarray:
    """Return the initial weights of the first hidden layer of a network on pixels.

    Parameters
    ----------
    experiment : Experiment
        An experiment with an MLP.
    features : int
        Number of inputs.
    classes : int
        Number of classes.

    Returns
    -------
    ndarray of shape (width, features)
        The weights before training.
    """
    shape: dict[str, Any] = {"depth": experiment.depth, "width": experiment.width}
    with seeded(experiment.seed):
        network = mlp(features, classes, kind=experiment.kind, **shape)
    weight = first_weight(network)
    assert weight is not None
    return weight.detach().numpy()


def _error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of wrong labels."""
    return float(np.mean(predicted != labels))
