"""Commands for one network: train, predict."""

from __future__ import annotations

import atexit
import csv
import os
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from tensorswitch import data as datasets
from tensorswitch._checks import check_device, check_seed
from tensorswitch._files import make_folder, only_one, replacing
from tensorswitch.cli._app import Components, Data, Seed, app, describe, err, load, say, stoppable
from tensorswitch.data import Preparation


def _from_toml(context: typer.Context, path: Path | None) -> Path | None:
    """Use the settings of a TOML file as defaults of the command-line options."""
    if path is None:
        return None
    try:
        settings = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise typer.BadParameter(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} is not a valid TOML file: {error}") from None
    known = {p.name: p for p in context.command.params}
    settings = {
        {"out": "folder"}.get(key, key.replace("-", "_")): value for key, value in settings.items()
    }
    if unknown := [key for key in settings if key not in known or key == "config"]:
        names = ["out" if name == "folder" else name for name in known if name != "config"]
        raise typer.BadParameter(
            f"{path} has unknown settings {', '.join(unknown)}; expected some of {', '.join(names)}"
        )
    context.default_map = {**(context.default_map or {}), **settings}
    return path


@app.command()
def train(
    data: Data = "digits",
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder for checkpoints, history and model; interrupted runs resume from it.",
        ),
    ] = Path("run"),
    kind: Annotated[
        str, typer.Option(help="Kind of network: ss, ts-lrc, ts-ibp-lrc or ts-ibp.")
    ] = "ts-lrc",
    architecture: Annotated[str, typer.Option(help="mlp or cnn.")] = "mlp",
    depth: Annotated[int, typer.Option(help="Number of hidden layers.")] = 2,
    width: Annotated[int, typer.Option(help="Units (gates) per layer.")] = 256,
    convolutions: Annotated[int, typer.Option(help="Convolutions per block of a cnn.")] = 1,
    epochs: Annotated[
        int, typer.Option(help="Total passes over the data, including those of resumed runs.")
    ] = 10,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "sgd",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    momentum: Annotated[float, typer.Option(help="Momentum of sgd.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="L2 penalty on the trained weights.")] = 1e-3,
    batch_size: Annotated[int, typer.Option(help="Rows per step.")] = 128,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop after this many epochs without a lower validation error."),
    ] = None,
    components: Components = None,
    device: Annotated[str, typer.Option(help="Device for training.")] = "cpu",
    precision: Annotated[str | None, typer.Option(help="bf16 multiplies in bfloat16.")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard events, too.")
    ] = False,
    seed: Seed = 0,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with any of these settings.", callback=_from_toml, is_eager=True
        ),
    ] = None,
) -> None:
    """Train a network; the epoch of lowest validation error is kept in OUT/model.safetensors.

    Under torchrun, each of the N processes handles BATCH_SIZE rows of a batch of N × BATCH_SIZE.
    """
    from tensorswitch.models import cnn, mlp, save_model
    from tensorswitch.training import BEST, Learner, Rows
    from tensorswitch.training import train as run

    check_seed(seed)
    check_device(device)
    if patience is not None and patience < 1:
        raise ValueError(f"patience must be at least 1, got {patience}")
    content = load(data)
    if architecture not in ("mlp", "cnn"):
        raise ValueError(f"architecture must be mlp or cnn, got {architecture}")
    split = content.protocol(components or None, flat=architecture == "mlp")
    torch.manual_seed(seed)
    classes = len(content.class_names)
    if architecture == "mlp":
        network = mlp(split.train.shape[1], classes, kind=kind, depth=depth, width=width)
    elif split.train.ndim != 4:
        raise ValueError(
            f"a CNN needs images, but {content.name} has rows of {split.train.shape[1]} features; "
            "use --architecture mlp"
        )
    else:
        network = cnn(
            split.train.shape[1],
            split.train.shape[2:],
            classes,
            kind=kind,
            convolutions=convolutions,
            depth=depth,
            width=width,
        )
    settings: dict[str, Any] = {
        "optimizer": optimizer,
        "lr": lr,
        "momentum": momentum,
        "weight_decay": weight_decay,
    }
    settings.update(batch_size=batch_size, precision=precision)
    first = _join_processes(device)
    learner = Learner(network, seed=seed, device=_own_device(device), **settings)
    rows = [Rows.from_numpy(x, y) for x, y in zip(split[0:6:2], split[1:6:2], strict=True)]
    if first:
        say(f"{describe(content)}; {kind} {architecture}; writing results to {folder}")
    notes = {
        "data": content.fingerprint,
        "components": components or None,
        "seed": seed,
        **settings,
        **network.description,
    }
    parts: dict[str, Any] = {"validation": rows[1], "test": rows[2]}
    keep: dict[str, Any] = {"folder": folder, "notes": notes, "tensorboard": tensorboard}
    make_folder(folder)
    with only_one(folder) if first else nullcontext(), stoppable(folder):
        history = run(
            learner, rows[0], epochs=epochs, patience=patience, progress=True, **parts, **keep
        )
    if not first:
        return
    learner.restore(folder / BEST, notes)
    preparation = {"mean": torch.from_numpy(split.preparation.mean)}
    if split.preparation.basis is not None:
        preparation["basis"] = torch.from_numpy(split.preparation.basis)
    about = {
        "class_names": list(content.class_names),
        "flat": split.preparation.flat,
        "type": str(content.train_images.dtype),
    }
    save_model(network, folder / "model.safetensors", preparation, **about)
    best, start = history.best, history.epochs[0]
    if len(history.epochs) > epochs:
        say(
            f"{folder} already has {len(history.epochs)} epochs, more than the {epochs} requested; "
            "none were added."
        )
    validated = len(split.validation) > 0
    by = "validation error" if validated else "training loss (there are no validation rows)"
    say(
        f"Test error {100 * start.test_error:.2f} % after one pass, "
        f"{100 * best.test_error:.2f} % at epoch {best.epoch}, best by {by}."
    )
    say(f"Model: {folder / 'model.safetensors'}; history: {folder / 'history.csv'}")


def _join_processes(device: str) -> bool:
    """Join the processes of torchrun, if any; return whether this is the first process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        atexit.register(torch.distributed.destroy_process_group)
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def _own_device(device: str) -> str:
    """Return the device of this process."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


@app.command()
def predict(
    model: Annotated[
        Path,
        typer.Argument(help="A model.safetensors, or the output folder of `tensorswitch train`."),
    ],
    data: Annotated[
        str,
        typer.Argument(
            help="A data set, of which the test rows are used, or a .npy file of rows or images."
        ),
    ],
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file for the predictions.")
    ] = None,
) -> None:
    """Predict labels with a trained network."""
    from tensorswitch.models import load_model_with_extra
    from tensorswitch.training import Learner

    path = model / "model.safetensors" if model.is_dir() else model
    network, extra, notes = load_model_with_extra(path)
    if "mean" not in extra or "class_names" not in notes:
        raise ValueError(
            f"{path} does not describe the preparation of its inputs; "
            "use a model written by `tensorswitch train`"
        )
    names = notes["class_names"]
    images, labels = _rows_to_predict(data)
    if not len(images):
        raise ValueError(f"{data} has no rows to predict")
    if target is not None and target.is_dir():
        raise ValueError(f"{target} is a folder; give the path of a file for the predictions")
    if str(images.dtype) != notes.get("type"):
        raise ValueError(
            f"{data} contains {images.dtype}, but the model was trained on {notes.get('type')}; "
            "use the same type, since bytes are scaled as pixels"
        )
    if not np.isfinite(images).all():
        raise ValueError(f"{data} contains NaN or infinity")
    basis = extra["basis"].numpy() if "basis" in extra else None
    inputs = Preparation(extra["mean"].numpy(), basis, notes["flat"])(images)
    probabilities = Learner(network).outputs(torch.from_numpy(inputs)).softmax(1).numpy()
    found = probabilities.argmax(1)
    if labels is not None:
        if unknown := sorted({*labels} - {*names}):
            err.print(
                f"note: the model does not know the classes {', '.join(unknown)} of {data}; "
                "their rows count as errors",
                soft_wrap=True,
            )
        error = float(np.mean(np.array(names)[found] != labels))
        say(f"{len(found)} test rows of {data}: error {100 * error:.2f} %")
    if target is not None:
        with replacing(target) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["row", "label", "probability"])
            writer.writerows(
                [i, names[k], f"{probabilities[i, k]:.6f}"] for i, k in enumerate(found)
            )
        say(f"Predictions: {target}")
    elif labels is None:
        for k in found:
            say(names[k])


def _rows_to_predict(data: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return rows to predict and, for a data set, their labels."""
    from tensorswitch.data.readers import read_npy
    from tensorswitch.data.sources import as_rows, labels_beside

    path = Path(data)
    if path.suffix == ".npy" and labels_beside(path) is None:
        return as_rows(path, read_npy(path)), None
    content = datasets.load(data)
    return content.test_images, np.array(content.class_names)[content.test_labels]
