"""Run one experiment: prepare the data as in the paper, fit the method and test it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction.experiment import SGD, Experiment, Result
from tensorswitch.datasets import Dataset, Split, load
from tensorswitch.estimators import TSKernelSVC, kernel_svc_grid
from tensorswitch.linear import Copies, draw_gates, solve
from tensorswitch.models import Network, cnn, mlp
from tensorswitch.training import Epoch, Learner, Rows, train

Watch = Callable[[int, int, str], None]  # finished epochs, total epochs, note
FILTER_UNITS = 16  # results of wider networks have no filters, which make large files


def run(
    experiment: Experiment,
    folder: Path | None = None,
    watch: Watch | None = None,
    device: str = "cpu",
) -> Result:
    """Run an experiment; networks keep checkpoints in ``folder``, from which they resume.

    ``watch(done, total, note)`` is called after every epoch.
    """
    data = _data(experiment.data, experiment.extra)
    if experiment.fingerprint not in (None, data.fingerprint):
        raise ValueError(
            f"the data {experiment.data} have changed: their fingerprint is "
            f"{data.fingerprint}, but the experiment expects {experiment.fingerprint}"
        )
    classes = len(data.class_names)
    flat = experiment.family != "cnn"
    split = _prepared(
        experiment.data, experiment.extra, experiment.shuffle, experiment.components, flat
    )
    if experiment.family == "svm":
        return _svm(experiment, split)
    if experiment.family == "rr":
        return _ridge(experiment, split, classes)
    return _network(experiment, split, classes, folder, watch, device)


def with_fingerprints(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Bind experiments to the present content of their data."""
    experiments = list(experiments)
    sets = dict.fromkeys((e.data, e.extra) for e in experiments)
    found = {key: _data(*key).fingerprint for key in sets}
    return [replace(e, fingerprint=found[e.data, e.extra]) for e in experiments]


# Consecutive experiments mostly use the same data, so the last ones are kept.
@lru_cache(maxsize=1)
def _data(name: str, extra: bool) -> Dataset:
    return load(name, extra=extra)


@lru_cache(maxsize=1)
def _prepared(name: str, extra: bool, shuffle: bool, components: int | None, flat: bool) -> Split:
    seed = 0 if shuffle else None
    return _data(name, extra).protocol(components, flat=flat, seed=seed)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the numbers of the CPU, and restore torch's generator after the block."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _network(
    experiment: Experiment,
    split: Split,
    classes: int,
    folder: Path | None,
    watch: Watch | None,
    device: str,
) -> Result:
    """Train and test a network."""
    size = math.prod(split.preparation.mean.shape[1:])
    network = build(experiment, split.train.shape[1:], classes, size)
    sgd = {name: getattr(experiment, name) for name in SGD}

    def after(epoch: Epoch) -> None:
        if watch is not None:
            watch(epoch.epoch, experiment.epochs, f"test error {100 * epoch.test_error:.2f} %")

    history = train(
        Learner(network, device=device, **sgd),
        Rows.from_numpy(split.train, split.train_labels),
        epochs=experiment.epochs,
        validation=Rows.from_numpy(split.validation, split.validation_labels),
        test=Rows.from_numpy(split.test, split.test_labels),
        folder=folder if experiment.epochs > 1 else None,  # a single epoch needs no checkpoint
        notes=experiment.settings,
        after=after,
    )
    first, best = history.epochs[0], history.best
    weight, preparation = first_weight(network), split.preparation
    filters = None
    if weight is not None and experiment.width <= FILTER_UNITS:
        units = weight.detach().cpu().numpy()
        pixels = units if preparation.basis is None else units @ preparation.basis.T
        filters = [[float(f"{v:.3g}") for v in unit] for unit in pixels.tolist()]  # as drawn
    return Result(
        experiment.depth,
        min(e.seconds for e in history.epochs),
        first.test_error,
        first.validation_error,
        best.test_error,
        best.validation_error,
        best.epoch,
        [asdict(e) for e in history.epochs],
        filters,
        list(preparation.mean.shape),
    )


def build(
    experiment: Experiment, inputs: tuple[int, ...], classes: int, pixels: int = 1
) -> Network:
    """Return the untrained network of an experiment, for rows or images of shape ``inputs``.

    ``pixels`` is the size of the images whose pixels the rows are.
    """
    shape: dict[str, Any] = {
        "kind": experiment.kind,
        "depth": experiment.depth,
        "width": experiment.width,
    }
    with _seeded(experiment.seed):
        if experiment.family == "mlp":
            network = mlp(inputs[0], classes, **shape)
            weight = first_weight(network)
            if experiment.image_filters and weight is not None:
                n_out, n_in = weight.shape
                with torch.no_grad():  # Glorot's limit is sqrt(6 / (n_in + n_out))
                    weight *= math.sqrt((n_in + n_out) / (n_in + n_out * pixels))
            return network
        blocks: dict[str, Any] = {
            "convolutions": experiment.convolutions,
            "channels": experiment.channels,
        }
        return cnn(inputs[0], inputs[1:], classes, **shape, **blocks)


def first_weight(network: Network) -> Tensor | None:
    """Return the weights of the first hidden units, if their layer is fully connected."""
    first = next(iter(network))
    for name in ("gate_weight", "weight"):  # of TS layers and of SS layers
        weight = getattr(first, name, None)
        if isinstance(weight, Tensor) and weight.dim() == 2:
            return weight
    return next(iter(getattr(first, "gate_weights", [])), None)


def _ridge(experiment: Experiment, split: Split, classes: int) -> Result:
    """Solve the readout in one pass."""
    generator = torch.Generator().manual_seed(experiment.seed)
    copies = Copies(draw_gates(split.train.shape[1], [experiment.width], generator))
    x, y = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
    targets = 2 * torch.nn.functional.one_hot(y, classes).to(x.dtype) - 1
    start = time.perf_counter()
    mean = copies.mean_square(copies.rows(x))
    solution = solve(x, targets, copies, [a * mean for a in experiment.alphas], tol=experiment.tol)
    seconds = time.perf_counter() - start

    def error(x: np.ndarray, labels: np.ndarray) -> float:
        outputs = solution.outputs(copies, copies.rows(torch.from_numpy(x)))
        return _error(outputs.argmax(1).numpy(), labels)

    test = error(split.test, split.test_labels)
    validation = error(split.validation, split.validation_labels)
    note = f"λ = {solution.alpha / mean:.2g} × mean"
    return Result(1, seconds, test, validation, test, validation, note=note)


def _svm(experiment: Experiment, split: Split) -> Result:
    """Fit a kernel SVM to rows of unit length, choosing depth and C by validation error."""
    depth, C, kind = experiment.depths[0], experiment.Cs[0], experiment.kind
    start = time.perf_counter()
    if len(experiment.depths) * len(experiment.Cs) > 1:
        rows = slice(experiment.trial_rows)
        errors = kernel_svc_grid(
            split.train[rows],
            split.train_labels[rows],
            split.validation,
            split.validation_labels,
            kinds=[kind],
            depths=experiment.depths,
            Cs=experiment.Cs,
            memory_gb=8,
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
    test = _error(model.predict(split.test), split.test_labels)
    validation = _error(model.predict(split.validation), split.validation_labels)
    return Result(depth, seconds, best=test, best_validation=validation, note=note)


def untrained(experiment: Experiment, features: int, classes: int, pixels: int = 1) -> np.ndarray:
    """Return the initial weights of the first hidden layer of an MLP on images of ``pixels``."""
    weight = first_weight(build(experiment, (features,), classes, pixels))
    assert weight is not None
    return weight.detach().numpy()


def _error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of wrong labels, NaN if there are none."""
    return float(np.mean(predicted != labels)) if len(labels) else math.nan
