"""The result file of one method of a comparison."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from tensorswitch._files import write_text
from tensorswitch.experiments.machine import machine
from tensorswitch.experiments.methods import COMPARED

__all__ = ["FoldResult", "MethodRecord"]


@dataclass
class FoldResult:
    """Measures of one fit.

    Parameters
    ----------
    metrics : dict
        Measures on the test rows.
    fit_seconds, predict_seconds : float
        Times.
    one_pass : float, default=nan
        Test error after one pass over the data.
    curve : list of dict, default=[]
        Seconds and test error after each epoch of a network.
    note : str, default=""
        Remark on the fit.
    filters : list of list of float or None, default=None
        Learned weights of the first hidden units, in pixels.
    """

    metrics: dict[str, Any]
    fit_seconds: float
    predict_seconds: float
    one_pass: float = math.nan
    curve: list[dict[str, float]] = field(default_factory=list)
    note: str = ""
    filters: list[list[float]] | None = None


@dataclass
class MethodRecord:
    """The results of one method, one for each split of the rows.

    Parameters
    ----------
    name : str
        Name of the file, without suffix; it has a hash of the settings.
    method : str
        Name of the method.
    about : dict
        Settings, and the fingerprint of the data.
    folds : int
        Number of splits.
    results : list of FoldResult, default=[]
        Results so far.
    failure : str or None, default=None
        Why the method failed.
    made : dict, default={}
        When and on what machine.
    """

    name: str
    method: str
    about: dict[str, Any]
    folds: int
    results: list[FoldResult] = field(default_factory=list)
    failure: str | None = None
    made: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def found(cls, folder: Path, data: str, method: str, about: dict[str, Any], folds: int) -> Self:
        """Return the record of a folder, or an empty one.

        Parameters
        ----------
        folder : Path
            Folder of the records.
        data : str
            Name of the data.
        method : str
            Name of the method.
        about : dict
            Settings that the results depend on.
        folds : int
            Number of splits.

        Returns
        -------
        MethodRecord
            The record. A failure is forgotten, so that the method is tried again.

        Raises
        ------
        ValueError
            If the file is not a valid record.
        """
        key = json.dumps([method, about, folds], sort_keys=True).encode()
        digest = hashlib.blake2b(key, digest_size=6).hexdigest()
        record = cls(f"{data}-{method}-{digest}", method, about, folds)
        path = folder / f"{record.name}.json"
        if not path.exists():
            return record
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            for entry in content["results"]:
                result = FoldResult(**entry)
                result.one_pass = math.nan if result.one_pass is None else result.one_pass
                # R² of equal targets is not defined.
                result.metrics = {
                    k: math.nan if v is None else v for k, v in result.metrics.items()
                }
                if not isinstance(result.metrics["error"], float | int):
                    raise TypeError("errors must be numbers")
                record.results.append(result)
            record.made = dict(content["made"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} is not a valid result of a comparison ({error}); "
                "delete it to run the method again"
            ) from error
        return record

    def write(self, folder: Path) -> None:
        """Write the record, atomically.

        Parameters
        ----------
        folder : Path
            Folder of the records.
        """
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.made = {"date": now, **machine()}
        write_text(folder / f"{self.name}.json", json.dumps(without_nan(asdict(self))))

    @property
    def complete(self) -> bool:
        """Whether all splits are done."""
        return len(self.results) == self.folds

    @property
    def label(self) -> str:
        """Name of the method in tables."""
        return COMPARED[self.method].label

    @property
    def error(self) -> float:
        """Mean test error: the share of wrong rows, or 1 − R²; NaN if the method failed."""
        return self.mean("error") if self.complete else math.nan

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the splits.

        Parameters
        ----------
        measure : str
            Name of the measure.

        Returns
        -------
        float
            The mean of those splits where it is defined, as R² is not for equal targets; NaN if
            there are none.
        """
        known = self._known(measure)
        return float(np.mean(known)) if known else math.nan

    def _known(self, measure: str) -> list[float]:
        values = (r.metrics.get(measure) for r in self.results)
        return [v for v in values if v is not None and not math.isnan(v)]

    @property
    def spread(self) -> float:
        """Standard error of the error; NaN for one split of a regression."""
        errors = self._known("error")
        if len(errors) > 1:
            return float(np.std(errors, ddof=1) / math.sqrt(len(errors)))
        if self.results and "confusion" in self.results[0].metrics:
            rows = int(np.sum(self.results[0].metrics["confusion"]))
            return math.sqrt(max(self.error * (1 - self.error), 0.0) / rows)
        return math.nan

    @property
    def one_pass(self) -> float:
        """Mean test error after one pass over the data."""
        return float(np.mean([r.one_pass for r in self.results])) if self.results else math.nan

    @property
    def seconds(self) -> float:
        """Mean time of a fit."""
        return float(np.mean([r.fit_seconds for r in self.results])) if self.results else math.nan

    @property
    def summary(self) -> str:
        """The result in a few words."""
        if self.failure is not None:
            return "failed"
        if not self.results:
            return ""
        if "r2" in self.results[0].metrics:
            return f"R² {self.mean('r2'):.3f}"
        return f"test error {100 * self.mean('error'):.2f} %"


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
