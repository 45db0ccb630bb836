"""The summary of :mod:`benchmarks.tables`: scores, mean ranks, log-losses and seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._learners import GROUPS, OURS
from benchmarks._measure import describe
from benchmarks._tables import OPENML, TABLES

RESULTS = Path(__file__).parent / "results"
FIELDS = ("table", "split", "model", "score", "log_loss", "fit_seconds", "predict_seconds")
MEASURED = Path(__file__).parents[1] / "docs" / "measured.md"
START, END = "<!-- tables: written by benchmarks/tables.py -->", "<!-- end of tables -->"
SIGNIFICANT = 0.95


def read() -> pd.DataFrame:
    """Results, with a row for each table, split and model."""
    return pd.read_csv(RESULTS / "tables.csv").drop_duplicates(["table", "split", "model"])


def complete(frame: pd.DataFrame, models: list[str], measure: str) -> pd.DataFrame:
    """Means over those splits of a table that have results of all the models."""
    wide = frame[frame["model"].isin(models)].pivot_table(
        index=["table", "split"], columns="model", values=measure
    )
    whole = wide.reindex(columns=models).dropna()
    means = whole.groupby("table").mean()
    order = [name for name in (*TABLES, *OPENML) if name in means.index]
    return means.loc[order]


def write_summary() -> str:
    """Write `tables.md` and `tables.png`; return the text."""
    frame = read()
    found = set(frame["model"])
    defaults = [m for m in GROUPS["defaults"](True) if m in found]
    scores = complete(frame, defaults, "score")
    splits = frame[frame["model"].isin(defaults)].pivot_table(
        index=["table", "split"], columns="model", values="score"
    )
    count = splits.dropna().reset_index().groupby("table")["split"].nunique()
    text = [
        f"Made by `python -m benchmarks.tables`; {describe()}.",
        "",
        "## Defaults",
        "",
        f"Accuracy or R² of {len(defaults)} learners with their defaults on {len(scores)} tables "
        f"of at most 5,000 rows, 70 % of them for training; means of {count.min()} to "
        f"{count.max()} splits ({count.sum()} in all). Best in bold. Seconds are of the processor, "
        "on one thread.",
        "",
        *score_table(scores, defaults),
        *totals(frame, scores, defaults),
        "",
        f"![Critical difference](tables.png)\n\n{duels(scores)}",
    ]
    for group, title in (("library", "Other estimators of this library"), ("tuned", "Tuned")):
        text += with_others(frame, defaults, group, title)
    result = "\n".join(text) + "\n"
    (RESULTS / "tables.md").write_text(result, encoding="utf-8")
    write_section(scores, int(count.sum()))
    draw(scores.rank(axis=1, ascending=False))
    return result


def write_section(scores: pd.DataFrame, splits: int) -> None:
    """Replace the section on tables in `docs/measured.md`."""
    ranks = scores.rank(axis=1, ascending=False)
    means = ranks.mean().sort_values()
    listed = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
    behind = (scores.max(axis=1) - scores[OURS]).sort_values(ascending=False)
    worst = ", ".join(
        f"{table} ({scores.loc[table].idxmax()} +{gap:.3f})" for table, gap in behind[:6].items()
    )
    section = "\n".join(
        [
            START,
            f"**Tables** (`python -m benchmarks.tables`), {len(scores)} tables of at most 5,000 "
            f"rows and {splits} splits in all,",
            f"defaults only. Mean ranks of accuracy or R²: {listed}.",
            f"Ranks closer than {critical_difference(ranks):.2f} do not differ significantly "
            "(Nemenyi test, 5 %).",
            f"It is best on {int((ranks[OURS] == ranks.min(axis=1)).sum())} tables, and furthest "
            f"behind the best on {worst}.",
            "All scores, log-losses and seconds are in "
            "[`results/tables.md`](../benchmarks/results/tables.md).",
            "",
            "![Mean ranks with critical differences](../benchmarks/results/tables.png)",
            END,
        ]
    )
    text = MEASURED.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2] if rest else "\n"
    MEASURED.write_text(before.rstrip() + "\n\n" + section + after, encoding="utf-8")


def score_table(scores: pd.DataFrame, models: list[str]) -> list[str]:
    """A line for each table."""
    lines = ["| table | " + " | ".join(models) + " |", "|---" * (len(models) + 1) + "|"]
    for name, values in scores.iterrows():
        top = values.max()
        cells = [f"**{v:.3f}**" if v >= top - 5e-4 else f"{v:.3f}" for v in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def totals(frame: pd.DataFrame, scores: pd.DataFrame, models: list[str]) -> list[str]:
    """Lines of mean ranks, log-loss and seconds."""
    losses = [m for m in models if frame.loc[frame["model"] == m, "log_loss"].notna().any()]
    loss = complete(frame, losses, "log_loss")
    chosen = frame[frame["table"].isin(scores.index)].groupby("model")
    rows: list[tuple[str, pd.Series, int]] = [
        ("mean rank", scores.rank(axis=1, ascending=False).mean(), 2),
        ("mean rank, classes", _of(scores, True).rank(axis=1, ascending=False).mean(), 2),
        ("mean rank, numbers", _of(scores, False).rank(axis=1, ascending=False).mean(), 2),
        ("mean log-loss", loss.mean(), 3),
        ("mean rank of log-loss", loss.rank(axis=1).mean(), 2),
        ("median fit, s", chosen["fit_seconds"].median(), 2),
        ("longest fit, s", chosen["fit_seconds"].max(), 1),
        ("median predict, s", chosen["predict_seconds"].median(), 3),
    ]
    lines = []
    for title, values, digits in rows:
        cells = ["–" if np.isnan(v) else f"{v:.{digits}f}" for v in values.reindex(models)]
        lines.append(f"| *{title}* | " + " | ".join(cells) + " |")
    return lines


def _of(scores: pd.DataFrame, classes: bool) -> pd.DataFrame:
    known = {**TABLES, **OPENML}
    return scores.loc[[name for name in scores.index if known[name].classes == classes]]


def duels(scores: pd.DataFrame) -> str:
    """On how many tables the first is better than each of the others."""
    ours = scores[OURS]
    parts = [
        f"{name} {int((ours > column + 5e-4).sum())}:{int((ours < column - 5e-4).sum())}"
        for name, column in scores.items()
        if name != OURS
    ]
    return (
        f"Tables on which {OURS} is better : worse by more than 0.0005: " + ", ".join(parts) + "."
    )


def with_others(frame: pd.DataFrame, defaults: list[str], group: str, title: str) -> list[str]:
    """Mean ranks among all defaults and the learners of another group."""
    names = dict.fromkeys((*GROUPS[group](True), *GROUPS[group](False)))
    found = [name for name in names if name in set(frame["model"])]
    if not found:
        return []
    lines = ["", f"## {title}", ""]
    for classes in (True, False):
        some = [m for m in found if m in GROUPS[group](classes)]
        models = [*defaults, *some]
        scores = _of(complete(frame, models, "score"), classes)
        if not len(scores) or not some:
            continue
        ranks = scores.rank(axis=1, ascending=False).mean().sort_values()
        kind = "classes" if classes else "numbers"
        listed = ", ".join(f"{name} {value:.2f}" for name, value in ranks.items())
        lines += [f"Mean ranks, {kind} ({len(scores)} tables): {listed}.", ""]
        lines += [*score_table(scores[[OURS, *some]], [OURS, *some]), ""]
    return lines[:-1]


def critical_difference(ranks: pd.DataFrame) -> float:
    """Return how far apart mean ranks must be to differ, by the Nemenyi test."""
    from scipy.stats import studentized_range

    count = ranks.shape[1]
    quantile = studentized_range.ppf(SIGNIFICANT, count, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(count * (count + 1) / (6 * len(ranks))))


def draw(ranks: pd.DataFrame) -> None:
    """A critical-difference plot: mean ranks, and how far apart they must be to differ."""
    from matplotlib.figure import Figure

    count, tables = ranks.shape[1], len(ranks)
    difference = critical_difference(ranks)
    means = ranks.mean().sort_values()
    figure = Figure(figsize=(7.5, 0.4 * count + 1.1), layout="constrained")
    axes = figure.subplots()
    for place, (name, value) in enumerate(means.items()):
        axes.plot([value, value + difference], [place, place], color="#bbbbbb", linewidth=5)
        axes.plot(value, place, "o", color="#0072b2" if name == OURS else "#666666")
        axes.text(value - 0.08, place, f"{name}  {value:.2f}", ha="right", va="center", fontsize=9)
    axes.axvline(means.iloc[0] + difference, color="#bbbbbb", linewidth=1, linestyle=":")
    axes.set_xlim(means.min() - 1.9, means.max() + difference + 0.2)
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(
        f"mean rank on {tables} tables (less is better); bars: critical difference (Nemenyi, 5 %)"
    )
    figure.savefig(RESULTS / "tables.png", dpi=150)
