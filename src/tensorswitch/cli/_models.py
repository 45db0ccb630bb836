"""Commands for one model: train, predict, evaluate."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from tensorswitch.cli._app import (
    Components,
    Data,
    Id,
    Ignore,
    Seed,
    Target,
    Task,
    app,
    describe,
    describe_problem,
    err,
    load_problem,
    out,
    say,
    stoppable,
)
from tensorswitch.compare import Problem
from tensorswitch.datasets import Dataset

MODEL = "model.safetensors"
OF_NETWORKS = (
    "architecture",
    "convolutions",
    "optimizer",
    "momentum",
    "weight_decay",
    "patience",
    "device",
    "precision",
    "tensorboard",
)
ALIASES = {"out": "folder", "id": "id_column"}  # options whose parameters have other names


def _from_toml(context: typer.Context, path: Path | None) -> Path | None:
    """Use the settings of a TOML file as defaults of the command-line options."""
    if path is None:
        return None
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise typer.BadParameter(f"{path} does not exist") from None
    except RecursionError:
        reason = "it is nested too deeply"
        raise typer.BadParameter(f"{path} is not a valid TOML file: {reason}") from None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not a valid TOML file: {error}") from None
    known = {p.name: p for p in context.command.params}
    settings = {ALIASES.get(key, key.replace("-", "_")): value for key, value in settings.items()}
    if unknown := [key for key in settings if key not in known or key == "config"]:
        public = {name: option for option, name in ALIASES.items()}
        names = [public.get(name, name) for name in known if name != "config"]
        raise typer.BadParameter(
            f"{path} has unknown settings {', '.join(unknown)}; expected some of {', '.join(names)}"
        )
    if isinstance(settings.get("ignore"), str):
        settings["ignore"] = [settings["ignore"]]
    context.default_map = {**(context.default_map or {}), **settings}
    return path


@app.command()
def train(
    context: typer.Context,
    data: Data = "digits",
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder for checkpoints, history and model; interrupted runs resume from it.",
        ),
    ] = Path("run"),
    method: Annotated[
        str | None,
        typer.Option(
            help="kernel-ridge, rr, svm-ts, svm-ss, conv-rr (images) or a network: ss, ts-lrc, "
            "ts-ibp-lrc, ts-ibp, ss+ts. By default kernel-ridge for tables and ts-lrc for others."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Kind of network: ss, ts-lrc, ts-ibp-lrc, ts-ibp or ss+ts.")
    ] = None,
    target: Target = None,
    ignore: Ignore = None,
    id_column: Id = None,
    task: Task = None,
    architecture: Annotated[str, typer.Option(help="mlp or cnn.")] = "mlp",
    depth: Annotated[int | None, typer.Option(help="Number of hidden layers.")] = None,
    width: Annotated[int | None, typer.Option(help="Units (gates) per layer.")] = None,
    convolutions: Annotated[int, typer.Option(help="Convolutions per block of a cnn.")] = 1,
    epochs: Annotated[
        int | None,
        typer.Option(help="Total passes over the data, including those of resumed runs."),
    ] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "sgd",
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    momentum: Annotated[float, typer.Option(help="Momentum of sgd.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="L2 penalty on the trained weights.")] = 1e-3,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step.")] = None,
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
    """Train a model; it is kept in OUT/model.safetensors for `predict` and `evaluate`.

    Networks keep the epoch of lowest validation error. Under torchrun, each of the N processes
    handles BATCH_SIZE rows of a batch of N × BATCH_SIZE.
    """
    from tensorswitch.experiments.experiment import settings_of
    from tensorswitch.models import KINDS

    if method and kind and method != kind:
        raise typer.BadParameter(f"--method {method} and --kind {kind} exclude each other")
    problem = load_problem(data, target, ignore, id_column, task)
    is_table = problem.is_table
    method = method or kind or ("kernel-ridge" if is_table else "ts-lrc")
    shape = {
        "depth": depth,
        "width": width,
        "epochs": epochs,
        "lr": lr,
        "batch_size": batch_size,
        "components": components,
        "seed": seed,
    }
    say_notes = [f"  {note}" for note in problem.notes]
    if problem.task == "regression" or method not in KINDS:
        _check_given(context, method, problem.task)
        used = [*(settings_of(method) or shape)]  # of an unknown method nothing is known
        if is_table:
            used = [name for name in used if name != "components"]
        say_notes += _unused(context, method, [n for n in shape if n not in (*used, "seed")])
        say("\n".join([describe_problem(problem), *say_notes]))
        _train_method(problem, folder, method, shape)
        return
    others = ["momentum"] if optimizer != "sgd" else []
    others += ["convolutions"] if architecture != "cnn" else []
    say_notes += _unused(context, f"{method} {architecture} with {optimizer}", others)
    sgd = {"optimizer": optimizer, "momentum": momentum, "weight_decay": weight_decay}
    rest = {"convolutions": convolutions, "patience": patience, "tensorboard": tensorboard}
    where = {"architecture": architecture, "device": device, "precision": precision}
    given = {k: v for k, v in shape.items() if v is not None}
    _train_network(problem.dataset(), folder, method, say_notes, {**given, **sgd, **rest, **where})


def _check_given(context: typer.Context, method: str, task: str) -> None:
    """Raise if an option was given that only networks for classification have."""
    for name in _given(context, OF_NETWORKS):
        raise typer.BadParameter(
            f"{name} is for networks that classify and does not apply to {method} ({task})"
        )


def _unused(context: typer.Context, by: str, names: Iterable[str]) -> list[str]:
    """Return a note if options were given that are not used."""
    given = _given(context, names)
    return [f"  not used by {by}: {', '.join(given)}"] if given else []


def _given(context: typer.Context, names: Iterable[str]) -> list[str]:
    """Return those options that are on the command line or in a file of settings."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return [
        f"--{name.replace('_', '-')}"
        for name, source in sources.items()
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")
    ]


def _train_method(problem: Problem, folder: Path, method: str, settings: dict[str, Any]) -> None:
    """Fit a method in one call and print how good it is."""
    from tensorswitch._progress import progress_bar
    from tensorswitch.experiments.summary import seconds
    from tensorswitch.experiments.trained import train_method

    before = (folder / MODEL).exists()
    with stoppable(None), progress_bar(method, err.is_terminal) as bar:
        fit = train_method(
            problem, folder, method, watch=lambda done, total, note: bar(note=note), **settings
        )
    note = f" ({fit.note})" if fit.note else ""
    rows = len(problem.split()[1])
    say(
        f"{method}{note}: {_measures(fit.metrics)} on {rows} test rows, "
        f"fitted in {seconds(fit.fit_seconds)} s"
    )
    say(f"Model: {folder / MODEL}" + (", in place of an earlier one" if before else ""))


def _train_network(
    content: Dataset, folder: Path, kind: str, notes: list[str], options: dict[str, Any]
) -> None:
    """Train a network epoch by epoch, with checkpoints, and print its history."""
    from tensorswitch.experiments.networks import train_network

    def began(content: Dataset) -> None:
        about = f"{kind} {options['architecture']}; writing results to {folder}"
        say("\n".join([f"{describe(content)}; {about}", *notes]))

    with stoppable(folder):
        trained = train_network(content, folder, kind=kind, progress=True, began=began, **options)
    if trained is None:  # not the first process
        return
    history, epochs = trained.history, options.get("epochs", 10)
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


def _measures(metrics: dict[str, Any]) -> str:
    """Return the main measures in a line."""
    from tensorswitch.experiments.metrics import number

    if "r2" in metrics:
        return (
            f"R² {metrics['r2']:.4f}, RMSE {number(metrics['rmse'])}, MAE {number(metrics['mae'])}"
        )
    loss = f", log-loss {metrics['log_loss']:.4f}" if "log_loss" in metrics else ""
    balanced = f"balanced accuracy {100 * metrics['balanced_accuracy']:.2f} %"
    return f"accuracy {100 * metrics['accuracy']:.2f} %, {balanced}{loss}"


Model = Annotated[
    Path,
    typer.Argument(help="A model.safetensors, or the output folder of `tensorswitch train`."),
]
Rows = Annotated[
    str,
    typer.Argument(
        help="A table, with or without the target; an .npy or .npz file; a picture or a folder of "
        "them; or a data set, of which the test rows are used."
    ),
]
LabelledRows = Annotated[
    str,
    typer.Argument(
        help="A table with the target; an .npz file with labels; a folder of pictures with a "
        "folder per class; or a data set, of which the test rows are used."
    ),
]


@app.command()
def predict(
    model: Model,
    data: Rows,
    target: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file for the predictions.")
    ] = None,
    id_column: Id = None,
) -> None:
    """Predict the rows of a file, in their order, with probabilities or intervals."""
    if target is not None:
        _check_output(target, model, data)
    found, rows = _predictions(model, data, id_column)
    if found.truth is not None:
        error = "" if found.class_names is None else f"error {100 * found.error:.2f} %"
        say(f"{len(found)} {rows.what}: {error or _measures(found.metrics())}")
    if target is not None:
        found.save(target, rows.ids, rows.id_name)
        say(f"Predictions: {target}")
    elif found.truth is None:
        for label in found.columns()[("prediction" if found.class_names is None else "label")]:
            say(str(label))


@app.command()
def evaluate(model: Model, data: LabelledRows) -> None:
    """Measure a model on the rows of a file that has the target."""
    found, rows = _predictions(model, data, None, need_truth=True)
    metrics = found.metrics()
    say(f"{len(found)} {rows.what}: {_measures(metrics)}")
    if found.class_names is None:
        return
    names = [*found.class_names, *found.unknown]
    if len(names) > MOST_CLASSES:
        say(f"(no confusion matrix of {len(names)} classes)")
        return
    table = RichTable(title="rows by right class (down) and predicted class (across)")
    for name in ("", *found.class_names, "right, %"):
        table.add_column(name, justify="right")
    for i, name in enumerate(names):
        counts = metrics["confusion"][i]
        share = f"{100 * counts[i] / sum(counts):.1f}" if sum(counts) else "–"
        table.add_row(name, *(str(n) for n in counts[: len(found.class_names)]), share)
    out.print(table)


MOST_CLASSES = 20  # of a confusion matrix in the terminal


def _check_output(target: Path, model: Path, data: str) -> None:
    """Raise if the predictions would replace what they are made from."""
    if target.is_dir():
        raise ValueError(f"{target} is a folder; give the path of a file for the predictions")
    for path, what in ((Path(data), "data"), (model, "model"), (model / MODEL, "model")):
        if target.exists() and path.exists() and target.samefile(path):
            raise ValueError(f"{target} is the file of the {what}; write predictions to another")


def _predictions(model: Path, data: str, id_column: str | None, need_truth: bool = False) -> Any:
    """Predict rows, and print notes about them."""
    from tensorswitch.experiments.predictor import load_predictor
    from tensorswitch.experiments.rows import predict_rows

    found, rows = predict_rows(load_predictor(model), data, id_column)
    if need_truth and found.truth is None:
        raise ValueError(f"{data} does not have the target in every row; use `predict` instead")
    for note in rows.notes:
        err.print(f"note: {note}", soft_wrap=True)
    if found.unknown:
        err.print(
            f"note: the model does not know the classes {', '.join(found.unknown)} of {data}; "
            "their rows count as errors",
            soft_wrap=True,
        )
    return found, rows
