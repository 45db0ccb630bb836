"""Commands for one network: train, predict."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from tensorswitch.cli._app import Components, Data, Seed, app, describe, err, load, say, stoppable
from tensorswitch.data import Dataset


def _from_toml(context: typer.Context, path: Path | None) -> Path | None:
    """Use the settings of a TOML file as defaults of the command-line options."""
    if path is None:
        return None
    try:
        settings = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise typer.BadParameter(f"{path} does not exist") from None
    except RecursionError:
        reason = "it is nested too deeply"
        raise typer.BadParameter(f"{path} is not a valid TOML file: {reason}") from None
    except (OSError, ValueError) as error:
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
    from tensorswitch.experiments.networks import train_network

    content = load(data)

    def began(content: Dataset) -> None:
        say(f"{describe(content)}; {kind} {architecture}; writing results to {folder}")

    with stoppable(folder):
        trained = train_network(
            content,
            folder,
            kind=kind,
            architecture=architecture,
            depth=depth,
            width=width,
            convolutions=convolutions,
            epochs=epochs,
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            batch_size=batch_size,
            patience=patience,
            components=components,
            device=device,
            precision=precision,
            tensorboard=tensorboard,
            progress=True,
            seed=seed,
            began=began,
        )
    if trained is None:  # not the first process
        return
    history = trained.history
    if len(history.epochs) > epochs:
        say(
            f"{folder} already has {len(history.epochs)} epochs, more than the {epochs} requested; "
            "none were added."
        )
    by = "validation error" if trained.validated else "training loss (there are no validation rows)"
    best, start = history.best, history.epochs[0]
    say(
        f"Test error {100 * start.test_error:.2f} % after one pass, "
        f"{100 * best.test_error:.2f} % at epoch {best.epoch}, best by {by}."
    )
    say(f"Model: {trained.path}; history: {folder / 'history.csv'}")


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
    from tensorswitch.experiments.networks import predict_network

    if target is not None and target.is_dir():
        raise ValueError(f"{target} is a folder; give the path of a file for the predictions")
    found = predict_network(model, data)
    if found.unknown:
        err.print(
            f"note: the model does not know the classes {', '.join(found.unknown)} of {data}; "
            "their rows count as errors",
            soft_wrap=True,
        )
    if found.truth is not None:
        say(f"{len(found.labels)} test rows of {data}: error {100 * found.error:.2f} %")
    if target is not None:
        found.save(target)
        say(f"Predictions: {target}")
    elif found.truth is None:
        for label in found.labels:
            say(str(label))
