"""Write a comparison as a self-contained page, ``report.html``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from tensorswitch.experiments import report_figures as draw
from tensorswitch.experiments.comparison import Comparison
from tensorswitch.experiments.explaining import (
    Example,
    can_explain,
    examples,
    feature_names,
)
from tensorswitch.experiments.figures import MISSING, as_images, can_draw, for_both_schemes
from tensorswitch.experiments.machine import describe, today
from tensorswitch.experiments.method_records import MethodRecord
from tensorswitch.experiments.methods import COMPARED
from tensorswitch.experiments.pages import FigurePart, write_page
from tensorswitch.experiments.predictor import Predictor, load_predictor
from tensorswitch.experiments.summary import (
    cells,
    conclusion,
    header,
    how_measured,
    legend,
    reason,
)

__all__ = ["write_report"]

MOST_CLASSES = 30  # of a confusion matrix


def write_report(comparison: Comparison, path: Path, command: str) -> None:
    """Write conclusion, table, curves, errors and explanations to one file.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    path : Path
        The file to write.
    command : str
        Command line to show in the report.
    """
    settings = vars(comparison.settings).items()
    problem = comparison.problem
    found = _explained(comparison)
    write_page(
        path,
        "comparison.html",
        title=f"Which learner is best on {problem.name}?",
        conclusion=conclusion(comparison),
        measured=how_measured(comparison),
        notes=problem.notes,
        header=header(comparison),
        rows=cells(comparison),
        failures=[reason(r) for r in comparison.failed],
        legend=legend(comparison),
        methods=[(r.label, COMPARED[r.method].about) for r in comparison.ranked],
        figures=_figures(comparison),
        explained=found,
        filters=_filters(comparison) if can_draw() else [],
        missing="" if can_draw() else MISSING.capitalize(),
        command=command,
        settings=", ".join(f"{name} {value}" for name, value in settings),
        machine=f"{today()}, {describe()}",
    )


def _figures(comparison: Comparison) -> list[FigurePart]:
    """Draw error against time, the confusion matrix and the reliability curve."""
    done = [r for r in comparison.ranked if r.complete]
    if not can_draw() or not done:
        return []
    numbers = comparison.problem.class_names is None
    figures = [
        FigurePart(
            "Error against time",
            for_both_schemes(
                lambda: draw.times(done, numbers), "error against seconds of training"
            ),
            "Each point is a method, at the seconds that its fit took (squares: scikit-learn). "
            "Lines are networks, epoch by epoch, on the first split. The time axis is logarithmic.",
        )
    ]
    if numbers:
        return figures
    best, names = done[0], comparison.problem.class_names
    assert names is not None
    if len(names) <= MOST_CLASSES:
        counts = np.sum([r.metrics["confusion"] for r in best.results], axis=0)
        figures.append(
            FigurePart(
                f"What {best.label} confuses",
                for_both_schemes(lambda: draw.confusion(counts, names), "confusion matrix"),
                "Test rows by right class (down) and predicted class (across).",
            )
        )
    sure = next((r for r in done if all("reliability" in f.metrics for f in r.results)), None)
    if sure is not None:
        figures.append(_reliability(sure))
    return figures


def _reliability(record: MethodRecord) -> FigurePart:
    bins = np.sum([r.metrics["reliability"] for r in record.results], axis=0)
    return FigurePart(
        f"Can the probabilities of {record.label} be trusted?",
        for_both_schemes(lambda: draw.reliability(bins), "reliability curve"),
        "Share of right rows against the probability that was predicted; on the diagonal, "
        "probabilities mean what they say. Larger points are more rows.",
    )


def _filters(comparison: Comparison) -> list[FigurePart]:
    """Draw the weights of first layers, where they were learned."""
    problem, figures = comparison.problem, []
    if not problem.is_image:
        return []
    assert isinstance(problem.rows, np.ndarray)
    for record in comparison.ranked:
        weights = record.results[0].filters if record.results else None
        images = as_images(weights, _shape(problem.rows))
        if images is not None:
            figures.append(
                FigurePart(
                    f"Filters of {record.label}",
                    for_both_schemes(partial(draw.filters, images), "filters"),
                    "Learned weights of the first hidden units, in pixels; for images of one "
                    "channel, red is positive and blue negative.",
                )
            )
    return figures


def _shape(images: np.ndarray) -> list[int]:
    """Return the shape of images after preprocessing, which pads 28 × 28."""
    channels, height, width = images.shape[1:]
    return [channels, 32, 32] if (height, width) == (28, 28) else [channels, height, width]


def _explained(comparison: Comparison) -> dict[str, Any] | None:
    """Explain test rows with the best model of this library that can be explained exactly."""
    if not can_draw():
        return None
    for record in comparison.ranked:
        path = comparison.model_path(record)
        if not record.complete or not path.exists():
            continue
        predictor = load_predictor(path)
        if can_explain(predictor):
            return _explanations(comparison, record, predictor)
    return None


def _explanations(
    comparison: Comparison, record: MethodRecord, predictor: Predictor
) -> dict[str, Any]:
    problem = comparison.problem
    chosen, importance = examples(predictor, problem, problem.splits()[0])
    names = feature_names(predictor)
    picture = (
        (lambda: draw.importance_map(importance, predictor.row_shape))
        if problem.is_image
        else (lambda: draw.importance_bars(importance.ravel(), names))
    )
    return {
        "label": record.label,
        "importance": for_both_schemes(picture, "mean contribution of each feature"),
        "examples": [
            {
                "title": _title(example, problem.row_name(example.row)),
                "picture": _picture(comparison, predictor, example, names),
                "neighbours": example.neighbours,
                "correct": example.correct,
            }
            for example in chosen
        ],
    }


def _title(example: Example, name: str) -> str:
    name = name[0].upper() + name[1:]
    sure = "" if example.sure is None else f" ({100 * example.sure:.0f} %)"
    if example.against is None and example.said == example.right:
        return f"{name}: {example.said}{sure}, right"
    return f"{name}: said {example.said}{sure}, right is {example.right}"


def _picture(
    comparison: Comparison, predictor: Predictor, example: Example, names: list[str] | None
) -> Markup:
    problem = comparison.problem
    if problem.is_image:
        assert isinstance(problem.rows, np.ndarray)
        image = problem.rows[example.row]
        maps = [(f"for {example.said}", example.shares)]
        if example.against is not None:
            maps.append((f"for {example.right}", example.against))
        return for_both_schemes(lambda: draw.heat_maps(image, maps), "image and contributions")
    values = draw.row_values(problem.rows, example.row, names, example.shares.size)
    return for_both_schemes(
        lambda: draw.row_bars(values, example.shares.ravel()), "contributions of the columns"
    )
