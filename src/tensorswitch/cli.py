"""The command line: parses, calls, prints."""

from __future__ import annotations

import atexit
import csv
import math
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tensorswitch
from tensorswitch import data as datasets
from tensorswitch._files import make_folder, only_one, replacing
from tensorswitch.data import Dataset, Preparation
from tensorswitch.history import percent

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Tensor Switching networks, side by side with ReLU ones."
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: which there are, fetch them, look at one.")
app.add_typer(data_app, name="data")
out = Console(markup=False, highlight=False, emoji=False)
err = Console(stderr=True, markup=False, highlight=False, emoji=False)
say = partial(out.print, soft_wrap=True)  # a path broken over lines is no path

Data = Annotated[str, typer.Option("--data", "-d", help="A data set by name (see `tensorswitch data list`), or the path of your own.")]
Depth = Annotated[int | None, typer.Option(help="Hidden layers.")]
Width = Annotated[int | None, typer.Option(help="Units (gates) of each.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data.")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate.")]
Batch = Annotated[int | None, typer.Option(help="Rows of a step.")]
Components = Annotated[int | None, typer.Option(help="Principal components to project on; 0 leaves the pixels.")]
Seed = Annotated[int, typer.Option(help="Seed of weights and order.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(tensorswitch.__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)] = False,
) -> None:
    _state["debug"] = debug


_state = {"debug": False}


@contextmanager
def _stoppable(folder: Path) -> Iterator[None]:
    """Ctrl-C leaves a folder to go on from."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"stopped; the same command goes on from what is in {folder}")
        raise typer.Exit(130) from None


def _load(data: str) -> Dataset:
    """Ctrl-C while data are read or fetched leaves nothing behind."""
    try:
        return datasets.load(data)
    except KeyboardInterrupt:
        err.print("stopped; nothing was begun")
        raise typer.Exit(130) from None


@app.command()
def compare(
    data: Data = "digits",
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="Where results go; a run that was stopped goes on there.")] = None,
    methods: Annotated[str | None, typer.Option(help="Some of the methods, with commas between them.")] = None,
    depth: Depth = None,
    width: Width = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch_size: Batch = None,
    components: Components = None,
    seed: Seed = 0,
) -> None:
    """Train SS and every TS method on one data set; print the table and write report.html."""
    from tensorswitch.compare import COMPARED, Settings, check_methods
    from tensorswitch.compare import compare as run
    from tensorswitch.experiments import METHODS
    from tensorswitch.report import HEADER, cells, write_report

    content = _load(data)
    given = {"depth": depth, "width": width, "epochs": epochs, "lr": lr, "batch_size": batch_size, "components": components, "seed": seed}
    settings = Settings.for_data(content, **given)
    folder = folder or Path(f"compare-{content.name}")
    chosen = check_methods([m.strip() for m in methods.split(",")] if methods else COMPARED)
    make_folder(folder)
    say(f"{_describe(content)}; results go to {folder}")
    columns = [TextColumn("{task.description:28}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn()]
    with _stoppable(folder), Progress(*columns, console=err) as bars:
        tasks = {m: bars.add_task(METHODS[m], total=None, start=False, note="", visible=False) for m in chosen}

        def watch(method: str, done: int, total: int, note: str) -> None:
            if not bars.tasks[tasks[method]].started:
                bars.start_task(tasks[method])
            finished = total == done == 1
            bars.update(tasks[method], visible=True, note=note, total=None if total == 1 and not done else total, completed=done)
            if finished:
                bars.stop_task(tasks[method])

        result = run(content, settings, folder, chosen, watch, name=data)
    table = Table(title=f"Test error on {content.name}")
    for i, name in enumerate(HEADER):
        table.add_column(name, justify="left" if i in (0, 6) else "right")
    for row in cells(result):
        table.add_row(*row)
    out.print(table)
    write_report(result, folder / "report.html", shlex.join(["tensorswitch", *sys.argv[1:]]))
    say(f"Curves and filters: {folder / 'report.html'}")
    _report_failures(result.records)


def _from_toml(context: typer.Context, path: Path | None) -> Path | None:
    """Settings of a file become defaults, which options on the command line override."""
    if path is None:
        return None
    try:
        settings = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise typer.BadParameter(f"{path} is not there") from None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not a TOML file: {error}") from None
    known = {p.name: p for p in context.command.params}
    settings = {{"out": "folder"}.get(key, key.replace("-", "_")): value for key, value in settings.items()}
    if unknown := [key for key in settings if key not in known or key == "config"]:
        raise typer.BadParameter(
            f"{path} sets {', '.join(unknown)}; known are {', '.join('out' if k == 'folder' else k for k in known if k != 'config')}"
        )
    context.default_map = {**(context.default_map or {}), **settings}
    return path


@app.command()
def train(
    data: Data = "digits",
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where checkpoints, history and the model go; a run that was stopped goes on there.")
    ] = Path("run"),
    kind: Annotated[str, typer.Option(help="ss, ts-lrc, ts-ibp-lrc or ts-ibp.")] = "ts-lrc",
    architecture: Annotated[str, typer.Option(help="mlp or cnn.")] = "mlp",
    depth: Annotated[int, typer.Option(help="Hidden layers.")] = 2,
    width: Annotated[int, typer.Option(help="Units (gates) of each.")] = 256,
    convolutions: Annotated[int, typer.Option(help="Convolutions in each block of a cnn.")] = 1,
    epochs: Annotated[int, typer.Option(help="Passes over the data, those before a stop included.")] = 10,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "sgd",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    momentum: Annotated[float, typer.Option(help="Of sgd.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(help="L2 penalty on what is trained.")] = 1e-3,
    batch_size: Annotated[int, typer.Option(help="Rows of a step.")] = 128,
    patience: Annotated[int | None, typer.Option(help="Stop after so many epochs without a better validation error.")] = None,
    components: Components = None,
    device: Annotated[str, typer.Option(help="Where torch computes.")] = "cpu",
    precision: Annotated[str | None, typer.Option(help="bf16 for products in bfloat16.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write events too.")] = False,
    seed: Seed = 0,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these settings.", callback=_from_toml, is_eager=True)] = None,
) -> None:
    """Train one network, and keep the epoch of least validation error in OUT/model.safetensors.

    Under torchrun every process takes its share of each batch, which then has as many times BATCH_SIZE rows.
    """
    from tensorswitch.models import cnn, mlp, save_model
    from tensorswitch.training import BEST, Learner, Rows
    from tensorswitch.training import train as run

    if patience is not None and patience < 1:
        raise ValueError(f"patience must be at least 1, got {patience}")
    content = _load(data)
    if architecture not in ("mlp", "cnn"):
        raise ValueError(f"architecture must be mlp or cnn, got {architecture}")
    split = content.protocol(components or None, flat=architecture == "mlp")
    torch.manual_seed(seed)
    classes = len(content.class_names)
    if architecture == "mlp":
        network = mlp(split.train.shape[1], classes, kind=kind, depth=depth, width=width)
    elif split.train.ndim != 4:
        raise ValueError(f"{content.name} has rows of {split.train.shape[1]} features, no images, for a cnn to look at; use --architecture mlp")
    else:
        network = cnn(split.train.shape[1], split.train.shape[2:], classes, kind=kind, convolutions=convolutions, depth=depth, width=width)
    settings: dict[str, Any] = {"optimizer": optimizer, "lr": lr, "momentum": momentum, "weight_decay": weight_decay}
    settings.update(batch_size=batch_size, precision=precision)
    first = _join_processes(device)
    learner = Learner(network, seed=seed, device=_own_device(device), **settings)
    rows = [Rows.from_numpy(x, y) for x, y in zip(split[0:6:2], split[1:6:2], strict=True)]
    if first:
        say(f"{_describe(content)}; {kind} {architecture}; results go to {folder}")
    notes = {"data": content.fingerprint, "components": components or None, "seed": seed, **settings, **network.description}
    parts: dict[str, Any] = {"validation": rows[1], "test": rows[2]}
    keep: dict[str, Any] = {"folder": folder, "notes": notes, "tensorboard": tensorboard}
    make_folder(folder)
    with only_one(folder) if first else nullcontext(), _stoppable(folder):
        history = run(learner, rows[0], epochs=epochs, patience=patience, progress=True, **parts, **keep)
    if not first:
        return
    learner.restore(folder / BEST, notes)
    preparation = {"mean": torch.from_numpy(split.preparation.mean)}
    if split.preparation.basis is not None:
        preparation["basis"] = torch.from_numpy(split.preparation.basis)
    about = {"class_names": list(content.class_names), "flat": split.preparation.flat, "type": str(content.train_images.dtype)}
    save_model(network, folder / "model.safetensors", preparation, **about)
    best, start = history.best, history.epochs[0]
    if len(history.epochs) > epochs:
        say(f"{folder} has {len(history.epochs)} epochs already, more than the {epochs} asked for; none was added.")
    by = "validation error" if len(split.validation) else "training loss, as there are no rows for validation"
    say(f"Test error {100 * start.test_error:.2f} % after one pass, {100 * best.test_error:.2f} % at epoch {best.epoch}, best by {by}.")
    say(f"Model: {folder / 'model.safetensors'}; history: {folder / 'history.csv'}")


def _join_processes(device: str) -> bool:
    """Meet the other processes that torchrun has started; True for the first of them, and for one that is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
        atexit.register(torch.distributed.destroy_process_group)
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def _own_device(device: str) -> str:
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model.safetensors, or the folder of `tensorswitch train` that has one.")],
    data: Annotated[str, typer.Argument(help="A data set, whose test rows are taken, or a .npy file of rows or images alone.")],
    target: Annotated[Path | None, typer.Option("--out", "-o", help="Write the predictions there, as CSV.")] = None,
) -> None:
    """Predict labels with a trained network."""
    from tensorswitch.models import load_model_with_extra
    from tensorswitch.training import Learner

    path = model / "model.safetensors" if model.is_dir() else model
    network, extra, notes = load_model_with_extra(path)
    if "mean" not in extra or "class_names" not in notes:
        raise ValueError(f"{path} does not say how its inputs are prepared; use a model that `tensorswitch train` made")
    names = notes["class_names"]
    images, labels = _rows_to_predict(data)
    if not len(images):
        raise ValueError(f"{data} has no rows to predict")
    if target is not None and target.is_dir():
        raise ValueError(f"{target} is a folder; name a file for the predictions")
    if str(images.dtype) != notes.get("type"):
        raise ValueError(f"{data} holds {images.dtype}, but the model learned from {notes.get('type')}; bytes count as pixels, so use the same type")
    if not np.isfinite(images).all():
        raise ValueError(f"{data} contains NaN or infinity")
    basis = extra["basis"].numpy() if "basis" in extra else None
    inputs = Preparation(extra["mean"].numpy(), basis, notes["flat"])(images)
    probabilities = Learner(network).outputs(torch.from_numpy(inputs)).softmax(1).numpy()
    found = probabilities.argmax(1)
    if labels is not None:
        if unknown := sorted({*labels} - {*names}):
            err.print(f"note: the model does not know the classes {', '.join(unknown)} of {data}; their rows count as errors", soft_wrap=True)
        error = float(np.mean(np.array(names)[found] != labels))
        say(f"{len(found)} test rows of {data}: error {100 * error:.2f} %")
    if target is not None:
        with replacing(target) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["row", "label", "probability"])
            writer.writerows([i, names[k], f"{probabilities[i, k]:.6f}"] for i, k in enumerate(found))
        say(f"Predictions: {target}")
    elif labels is None:
        for k in found:
            print(names[k])


def _rows_to_predict(data: str) -> tuple[np.ndarray, np.ndarray | None]:
    from tensorswitch.data.readers import read_npy
    from tensorswitch.data.sources import as_rows, labels_beside

    path = Path(data)
    if path.suffix == ".npy" and labels_beside(path) is None:
        return as_rows(path, read_npy(path)), None
    content = datasets.load(data)
    return content.test_images, np.array(content.class_names)[content.test_labels]


Jobs = Annotated[int | None, typer.Option(help="Experiments at a time; by default one for each core.", min=1)]
Dask = Annotated[str | None, typer.Option(help="Address of a Dask scheduler, whose workers then do them; they must see the same folders.")]
Retry = Annotated[bool, typer.Option("--retry", help="Do those that failed again.")]


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file with [[grid]] tables of settings; lists in them are varied over.")],
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where results go, by default the name of the file; what is there is not done again.")
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    retry: Retry = False,
    device: Annotated[str, typer.Option(help="Where torch computes.")] = "cpu",
) -> None:
    """Run a grid of experiments; each leaves a result file, and a sweep that was stopped goes on where it was."""
    from tensorswitch._live import best_of
    from tensorswitch.experiments import METHODS, Experiment
    from tensorswitch.sweep import experiments_from_toml

    experiments = experiments_from_toml(file)
    folder = folder or Path(file.stem)
    records = _sweep(experiments, folder, jobs, dask, retry, device)
    varied = [n for n in Experiment.__dataclass_fields__ if len({repr(getattr(e, n)) for e in experiments}) > 1 and n not in ("data", "method")]
    table = Table("best by validation", *varied, "one pass, %", "best, %")
    best = list(best_of(records).values())
    for record in best:
        e, result = record.experiment, record.result
        assert result is not None
        values = [_setting(getattr(e, n)) if n in e.settings_names else "" for n in varied]
        table.add_row(f"{Path(e.data).stem}, {METHODS[e.method]}", *values, percent(result.one_pass), percent(result.best))
    out.print(table)
    for record in best:
        say(f"Result: {folder / record.experiment.name}.json")
    _report_failures(records)


def _setting(value: Any) -> str:
    return ", ".join(map(_setting, value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


@app.command("run")
def run_experiment(
    settings: Annotated[list[str], typer.Argument(help="NAME=VALUE, such as data=mnist method=ts-lrc depth=2 components=256.")],
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the result goes; what is there is not done again.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="Where torch computes.")] = "cpu",
) -> None:
    """Run one experiment of a sweep or of the paper."""
    from tensorswitch.experiments import Experiment

    pairs = [setting.split("=", 1) for setting in settings]
    if wrong := [p[0] for p in pairs if len(p) != 2]:
        raise ValueError(f"settings are written NAME=VALUE; got {', '.join(wrong)}")
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"each setting may be given once; got {' '.join(name for name, _ in pairs)}")
    given = {name: value if name in ("data", "method") else _toml_value(value) for name, value in pairs}
    experiment = Experiment.from_settings(given)
    (record,) = _sweep([experiment], folder, 1, None, True, device)
    _report_failures([record])
    result = record.result
    for name, error in (("after one pass", result.one_pass), ("best", result.best)):
        if not math.isnan(error):
            say(f"Test error {percent(error)} % {name}")
    say(f"Result: {folder / record.experiment.name}.json")


def _toml_value(text: str) -> Any:
    """Numbers, lists and truth values as TOML has them; anything else is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _report_failures(records: Any) -> None:
    from tensorswitch._live import title

    failed = [r for r in records if r.error is not None]
    for record in failed:
        err.print(f"failed: {title(record.experiment)}: {record.error}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _sweep(experiments: Any, folder: Path, jobs: int | None, dask: str | None, retry: bool, device: str) -> Any:
    from tensorswitch._live import live_table
    from tensorswitch.sweep import sweep as run

    with _stoppable(folder):
        return run(experiments, folder, jobs=jobs, dask=dask, retry=retry, device=device, during=lambda state: live_table(state, err))


@app.command()
def paper(
    what: Annotated[str, typer.Argument(help="table1 (errors of every method), figure2 (kernels), figure4 (CNN pairs), figure5 (filters), or all.")],
    scale: Annotated[
        str, typer.Option(help="smoke (a minute, on the digits), small (hours on two cores) or full (the paper's whole grid).")
    ] = "smoke",
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where all goes, by default paper-SCALE; what is there is not done again.")
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    retry: Retry = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Take the results that are there, and run nothing.")] = False,
) -> None:
    """Reproduce a table or figure of the paper from the experiments it is made of, and write report.html."""
    from tensorswitch._figures import MISSING, can_draw
    from tensorswitch.paper import reproduce

    parts = reproduce.parts_of(what)
    plan = reproduce.plans(parts, scale)
    if what != "table1" and not can_draw():
        raise ValueError(MISSING)
    folder = folder or Path(f"paper-{scale}")
    if no_run or not plan.experiments:
        records = reproduce.finished(plan.experiments, folder)
        if plan.experiments and not records:
            raise ValueError(f"{folder} has no results of {what} yet; leave --no-run away to make them")
    else:
        say(f"{len(plan.experiments)} experiments; results go to {folder}")
        records = _sweep(plan.experiments, folder / "runs", jobs, dask, retry, "cpu")
    if "table1" in parts:
        out.print(reproduce.terminal_table(records, out.width))
    for path in reproduce.write(parts, records, scale, folder, shlex.join(["tensorswitch", *sys.argv[1:]])):
        say(f"Written: {path}")
    for missing in reproduce.left_out(plan, records):
        say(f"Left out: {missing}")
    _report_failures(records)


@data_app.command("list")
def data_list() -> None:
    """The data sets known by name, and whether they are at hand."""
    table = Table("name", "at hand", "where it is looked for")
    for name in datasets.NAMES:
        if name == "digits":
            table.add_row(name, "yes", "comes with scikit-learn")
            continue
        place = datasets.found(name)
        table.add_row(name, "yes" if place else "no", str(place) if place else ", ".join(map(str, datasets.folders(name))))
    out.print(table)


@data_app.command("fetch")
def data_fetch(name: str, extra: Annotated[bool, typer.Option("--extra", help="SVHN's extra images too.")] = False) -> None:
    """Download a data set, check it, and say where it is."""
    say(f"{name} is in {datasets.fetch(name, extra=extra)}")


@data_app.command("info")
def data_info(name: Annotated[str, typer.Argument(help="A data set by name, or the path of your own.")]) -> None:
    """How many rows, of what shape, in which classes."""
    content = datasets.load(name)
    say(_describe(content))
    table = Table("class", "training", "test")
    for i, label in enumerate(content.class_names):
        table.add_row(label, str(int((content.train_labels == i).sum())), str(int((content.test_labels == i).sum())))
    out.print(table)


def _describe(content: Dataset) -> str:
    shape = " × ".join(map(str, content.train_images.shape[1:]))
    kind = "images" if content.train_images.ndim == 4 else "rows of features"
    rows = f"{len(content.train_images)} to learn, {len(content.test_images)} to test"
    return f"{content.name}: {rows}, {kind} {shape}, {len(content.class_names)} classes"


def main() -> None:
    """Errors are one line with what to do; tracebacks only with --debug."""
    from tensorswitch.training import DivergedError

    known: Any = (ValueError, TypeError, OSError, ImportError, MemoryError, RuntimeError, AssertionError, DivergedError)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except known as error:
        if _state["debug"]:
            raise
        err.print("error: ", style="red", end="")
        err.print(str(error) or type(error).__name__, markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
