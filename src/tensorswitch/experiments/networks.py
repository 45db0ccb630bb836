"""One network on one data set: trained in a folder of its own, and used on other rows."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tensorswitch._checks import check_device, check_positive, check_seed
from tensorswitch._files import make_folder, only_one
from tensorswitch._random import seeded
from tensorswitch.data import load
from tensorswitch.datasets import Dataset, Preparation, Split
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.experiments.predictor import MODEL, load_predictor
from tensorswitch.experiments.rows import predict_rows
from tensorswitch.models import Network, cnn, mlp, save_model
from tensorswitch.training import BEST, CHECKPOINT, History, Learner, Rows, train

__all__ = ["TrainedNetwork", "predict_network", "train_network"]


@dataclass(frozen=True)
class TrainedNetwork:
    """A network and how its training went.

    Parameters
    ----------
    network : Network
        With the weights of the epoch of least validation error.
    history : History
        All epochs.
    path : Path
        The file with the model.
    validated : bool
        Whether there were rows for validation; otherwise the training loss decided.
    """

    network: Network
    history: History
    path: Path
    validated: bool


def train_network(
    data: str | Path | Dataset,
    folder: str | Path,
    *,
    kind: str = "ts-lrc",
    architecture: str = "mlp",
    depth: int = 2,
    width: int = 256,
    convolutions: int = 1,
    epochs: int = 10,
    optimizer: str = "sgd",
    lr: float = 1e-3,
    momentum: float = 0.9,
    weight_decay: float = 1e-3,
    batch_size: int = 128,
    patience: int | None = None,
    components: int | None = None,
    device: str = "cpu",
    precision: str | None = None,
    tensorboard: bool = False,
    progress: bool = False,
    seed: int = 0,
    began: Callable[[Dataset], None] | None = None,
) -> TrainedNetwork | None:
    """Train a network and keep the epoch of least validation error.

    A run that was interrupted resumes from its folder. Under ``torchrun`` each of N processes
    handles ``batch_size`` rows of a batch of N · ``batch_size``.

    Parameters
    ----------
    data : str, path or Dataset
        A data set by name, by path, or loaded already.
    folder : path
        For checkpoints, history and ``model.safetensors``.
    kind : {"ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts"}, default="ts-lrc"
        The kind of network.
    architecture : {"mlp", "cnn"}, default="mlp"
        Its architecture.
    depth, width, convolutions : int
        Hidden layers, units of each, and convolutions per block of a CNN.
    epochs : int, default=10
        Passes over the data, including those of an interrupted run.
    optimizer, lr, momentum, weight_decay, batch_size, precision : various
        As in :class:`tensorswitch.training.Learner`.
    patience : int, optional
        Stop after so many epochs without a lower validation error.
    components : int, optional
        Principal components of the inputs.
    device : str, default="cpu"
        Where to train.
    tensorboard : bool, default=False
        Write TensorBoard events.
    progress : bool, default=False
        Show a progress bar.
    seed : int, default=0
        Of weights and the order of rows.
    began : callable, optional
        Called with the data before training starts, in the first process.

    Returns
    -------
    TrainedNetwork or None
        None in all processes but the first.

    Raises
    ------
    ValueError
        If an argument is not valid, or the folder has a run with other settings or another model.
    """
    seed = check_seed(seed)
    check_device(device)
    if patience is not None:
        check_positive(patience=patience)
    content = data if isinstance(data, Dataset) else load(data)
    if architecture not in ("mlp", "cnn"):
        raise ValueError(f"architecture must be mlp or cnn, got {architecture}")
    split = content.protocol(components or None, flat=architecture == "mlp")
    shape: dict[str, Any] = {"kind": kind, "depth": depth, "width": width}
    with seeded(seed):
        network = _build(content, split, architecture, convolutions, shape)
    settings: dict[str, Any] = {
        "optimizer": optimizer,
        "lr": lr,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "batch_size": batch_size,
        "precision": precision,
    }
    first = _join_processes(device)
    learner = Learner(network, seed=seed, device=_own_device(device), **settings)
    rows = [Rows.from_numpy(x, y) for x, y in zip(split[0:6:2], split[1:6:2], strict=True)]
    folder = Path(folder)
    make_folder(folder)
    if (folder / MODEL).exists() and not (folder / CHECKPOINT).exists():
        raise ValueError(
            f"{folder} has a model of another method, {MODEL}; choose another folder, or delete it"
        )
    if first and began is not None:
        began(content)
    about = {"data": content.fingerprint, "components": components or None, "seed": seed}
    notes = {**about, **settings, **network.description}
    with only_one(folder) if first else nullcontext():
        history = train(
            learner,
            rows[0],
            epochs=epochs,
            patience=patience,
            validation=rows[1],
            test=rows[2],
            folder=folder,
            notes=notes,
            tensorboard=tensorboard,
            progress=progress,
        )
        if not first:
            return None
        learner.restore(folder / BEST, notes)
        _save(network, content, split.preparation, folder / MODEL)
    return TrainedNetwork(network, history, folder / MODEL, len(split.validation) > 0)


def _build(
    content: Dataset, split: Split, architecture: str, convolutions: int, shape: dict[str, Any]
) -> Network:
    inputs, classes = split.train.shape[1:], len(content.class_names)
    if architecture == "mlp":
        return mlp(inputs[0], classes, **shape)
    if len(inputs) != 3:
        raise ValueError(
            f"a CNN needs images, but {content.name} has rows of {inputs[0]} features; "
            "use --architecture mlp"
        )
    return cnn(inputs[0], inputs[1:], classes, convolutions=convolutions, **shape)


def _save(network: Network, content: Dataset, preparation: Preparation, path: Path) -> None:
    """Write the model with the preparation of its inputs."""
    images = content.train_images
    about: dict[str, Any] = {
        "mean": preparation.mean,
        "basis": preparation.basis,
        "scale": preparation.scale,
        "class_names": list(content.class_names),
        "flat": preparation.flat,
        "type": str(images.dtype),
        "shape": list(images.shape[1:]),
    }
    if content.encoder is not None:
        about["table"] = {
            "encoder": content.encoder,
            "target": content.target_name,
            "target_written": content.target_written,
            "id": content.id_name,
        }
    save_model(network, path, **about)


def _join_processes(device: str) -> bool:
    """Join the processes of torchrun, if any; return whether this is the first process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        atexit.register(torch.distributed.destroy_process_group)
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def _own_device(device: str) -> str:
    """Return the device of this process."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


def predict_network(model: str | Path, data: str | Path) -> Predictions:
    """Predict with a model that ``tensorswitch train`` wrote.

    Parameters
    ----------
    model : path
        The file, or the folder that it is in.
    data : str or path
        A data set, of which the test rows are used, or a file of rows or images.

    Returns
    -------
    Predictions
    """
    return predict_rows(load_predictor(model), data)[0]
