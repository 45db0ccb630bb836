"""Commands for one model: train, predict, evaluate."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tensorswitch.cli import _app as cli

RUN, MODEL = Path("run"), "model.safetensors"
MOST_CLASSES = 20  # of a confusion matrix in the terminal
EXPLAINED = 200  # test rows whose contributions say which columns count


@cli.app.command()
def train(
    data: cli.Data = "digits",
    target: cli.Target = None,
    ignore: cli.Ignore = None,
    id_column: cli.Id = None,
    task: cli.Task = None,
    method: Annotated[
        str | None, cli.option("LEARNER", "One of those of compare [by size].")
    ] = None,
    settings: cli.Set = None,
    holdout: Annotated[
        bool, typer.Option("--holdout", help="Do not fit again to the rows tested on.")
    ] = False,
    metric: cli.Metric = None,
    split: cli.Split = None,
    test: cli.Test = None,
    class_weight: cli.Weight = None,
    components: cli.Components = None,
    folder: Annotated[Path, cli.option(None, "Folder of the model [run].", "--out", "-o")] = RUN,
    sep: cli.Sep = None,
    decimal: cli.Decimal = None,
    dayfirst: cli.Day = None,
) -> None:
    """Train a model, test it on three tenths of the rows, and fit it to all of them.

    It is kept in OUT/model.safetensors for `predict` and `evaluate`.
    """
    from tensorswitch._progress import progress_bar
    from tensorswitch.compare import train as run
    from tensorswitch.compare._fitting import only_class, usual_learner
    from tensorswitch.compare._report import seconds
    from tensorswitch.compare._splits import once

    given: dict[str, Any] = {"settings": cli.parameters(settings), "components": components}
    given |= {"metric": metric, "split": split, "class_weight": cli.class_weight(class_weight)}
    divides = (split or "").partition(":")[2]
    ignored = [name for name in ignore or () if name != divides]
    columns = {"target": target, "ignore": ignored, "id_column": id_column, "test": test}
    form = {"sep": sep, "decimal": decimal, "dayfirst": dayfirst}
    problem = cli.load(data, task=task, **columns, **form)
    cli.say(cli.describe(problem, components, split or test))
    if method is None:
        method = usual_learner(problem)
        cli.say(f"  {method} is taken for {len(problem):,} rows; --method names another learner")
    before = (folder / MODEL).exists()
    with cli.stoppable(), progress_bar(method, cli.err.is_terminal):
        predictor, result = run(problem, method, folder, holdout=holdout, **given)
    train_rows, test_rows = once(problem, split)
    note = f" ({result.note})" if result.note else ""
    if only := only_class([result], problem.class_names):
        cli.say(f"warning: {method} predicts {only}, whatever the row")
    fitted = f"fitted to {len(train_rows):,} in {seconds(result.fit_seconds)} s"
    what = f"{cli.measures(result.metrics)} on {len(test_rows):,} test rows"
    cli.say(f"{method}{note}: {what}, {fitted}")
    if predictor.threshold is not None:
        rare, least = predictor.threshold
        name = (problem.class_names or ())[rare]
        cli.say(f"{name!r} is predicted from a probability of {least:.3g}, for the best {metric}")
    if problem.is_table and hasattr(predictor.model, "explain"):
        found = predictor.explain(problem.take(test_rows[:EXPLAINED]))
        size = abs(found.contributions).mean((0, 1))
        most = sorted(zip(size / size.sum(), predictor.encoder.columns, strict=True))[:-6:-1]
        cli.say(f"Counts most: {', '.join(f'{name} {100 * share:.0f} %' for share, name in most)}")
    if not holdout:
        cli.say(f"Fitted again to all {len(problem):,} rows")
    cli.say(f"Model: {folder / MODEL}" + (", in place of an earlier one" if before else ""))


Model = Annotated[
    Path, typer.Argument(help="A model.safetensors, or the folder of `tensorswitch train`.")
]
_files = "A table, an .npy or .npz file, a picture, a folder of pictures"
_sets = "or a data set, of which the test rows are used."
Rows = Annotated[str, typer.Argument(help=f"{_files}, {_sets}")]


@cli.app.command()
def predict(
    model: Model,
    data: Rows,
    target: Annotated[
        Path | None, cli.option(None, "CSV file for the predictions.", "--out", "-o")
    ] = None,
    id_column: cli.Id = None,
    sep: cli.Sep = None,
) -> None:
    """Predict the rows of a file, in their order, with probabilities or intervals."""
    if target is not None:
        _check_output(target, model, data)
    found, rows = _predictions(model, data, id_column, sep)
    if found.truth is not None:
        error = "" if found.class_names is None else f"error {100 * found.error:.2f} %"
        cli.say(f"{len(found)} {rows.what}: {error or cli.measures(found.metrics())}")
    if target is not None:
        found.save(target, rows.ids, rows.id_name)
        cli.say(f"Predictions: {target}")
    elif found.truth is None:
        for label in found.columns()[("prediction" if found.class_names is None else "label")]:
            cli.say(label)


@cli.app.command()
def evaluate(model: Model, data: Rows, sep: cli.Sep = None) -> None:
    """Measure a model on the rows of a file that has the target."""
    found, rows = _predictions(model, data, None, sep, need_truth=True)
    metrics = found.metrics()
    cli.say(f"{len(found)} {rows.what}: {cli.measures(metrics)}")
    if found.class_names is None:
        return
    names = [*found.class_names, *found.unknown]
    if len(names) > MOST_CLASSES:
        cli.say(f"(no confusion matrix of {len(names)} classes)")
        return
    table = Table(title="rows by right class (down) and predicted class (across)")
    for name in ("", *found.class_names, "right, %"):
        table.add_column(name, justify="right")
    for i, name in enumerate(names):
        counts = metrics["confusion"][i]
        share = f"{100 * counts[i] / sum(counts):.1f}" if sum(counts) else "–"
        table.add_row(name, *(str(n) for n in counts[: len(found.class_names)]), share)
    cli.out.print(table)


def _check_output(target: Path, model: Path, data: str) -> None:
    """Raise if the predictions would replace what they are made from."""
    if target.is_dir():
        raise ValueError(f"{target} is a folder; give the path of a file for the predictions")
    for path, what in ((Path(data), "data"), (model, "model"), (model / MODEL, "model")):
        if target.exists() and path.exists() and target.samefile(path):
            raise ValueError(f"{target} is the file of the {what}; write predictions to another")


def _predictions(
    model: Path, data: str, id_column: str | None, sep: str | None, need_truth: bool = False
) -> Any:
    """Predict rows, and print notes about them."""
    from tensorswitch.compare import load_predictor, predict_rows

    if Path(data).suffix == ".safetensors" or (Path(data) / MODEL).exists():
        raise ValueError(f"{data} is a model, but the data come second: MODEL, then DATA")
    found, rows = predict_rows(load_predictor(model), data, id_column, sep)
    if need_truth and found.truth is None:
        raise ValueError(f"{data} does not have the target in every row; use `predict` instead")
    notes = [*rows.notes]
    if found.unknown:
        strangers = f"the model does not know the classes {', '.join(found.unknown)} of {data}"
        notes.append(f"{strangers}; their rows count as errors")
    for note in notes:
        cli.err.print(f"note: {note}", soft_wrap=True)
    return found, rows
