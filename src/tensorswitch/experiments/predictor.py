"""A fitted model with everything around it: from the rows of a file to predictions."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from tensorswitch._files import read_header
from tensorswitch.datasets import Preparation
from tensorswitch.estimators import load_estimator_with_notes, save_estimator
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.linear._calibration import Calibration
from tensorswitch.models import Network
from tensorswitch.persistence import load_with_notes
from tensorswitch.tables import TableEncoder
from tensorswitch.training import Learner

__all__ = ["MODEL", "Front", "Interval", "Predictor", "load_predictor"]

MODEL = "model.safetensors"
COVERED = 0.9  # nominal coverage of the intervals


@dataclass(frozen=True)
class Front:
    """What lies between encoded rows and the model.

    Parameters
    ----------
    images : bool, default=False
        Whether the model takes raw images, with channels last.
    length : float or None, default=None
        If given, rows are divided by it, and a constant of 1 is appended.
    preparation : Preparation or None, default=None
        If given, it is applied.
    """

    images: bool = False
    length: float | None = None
    preparation: Preparation | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the inputs of the model.

        Parameters
        ----------
        x : ndarray
            Encoded rows, or raw images of shape (rows, channels, height, width).

        Returns
        -------
        ndarray
            The inputs.
        """
        if self.images:
            return x.transpose(0, 2, 3, 1)
        if self.preparation is not None:
            return self.preparation(x)
        if self.length is None:
            return x
        return np.column_stack([x / self.length, np.ones(len(x), x.dtype)]).astype(x.dtype)


@dataclass(frozen=True)
class Interval:
    """Where the targets of new rows lie, from residuals of rows that were held out.

    Parameters
    ----------
    low, high : float
        Quantiles of the residuals, in units of the predicted deviation if ``scaled``.
    scaled : bool
        Whether the model predicts a deviation for each row.
    """

    low: float
    high: float
    scaled: bool

    @classmethod
    def fit(cls, residuals: np.ndarray, deviations: np.ndarray | None) -> Interval:
        """Take quantiles that cover nine tenths of the rows.

        Parameters
        ----------
        residuals : ndarray of shape (rows,)
            Targets minus predictions of rows that the model has not seen.
        deviations : ndarray of shape (rows,) or None
            Predicted standard deviations.

        Returns
        -------
        Interval
            The interval.
        """
        relative = residuals if deviations is None else residuals / deviations
        rest = (1 - COVERED) / 2
        low = np.quantile(relative, rest, method="lower")
        high = np.quantile(relative, 1 - rest, method="higher")
        # If all predictions are too high or too low, the interval still has the prediction in it.
        return cls(min(float(low), 0.0), max(float(high), 0.0), deviations is not None)


@dataclass
class Predictor:
    """A fitted estimator, the encoding of its inputs and the meaning of its outputs.

    Parameters
    ----------
    model : estimator
        A fitted estimator.
    encoder : TableEncoder or Preparation
        From rows to numbers.
    method : str
        Name of the method.
    class_names : tuple of str or None
        Names of the classes; None for a regression.
    front : Front, default=Front()
        From numbers to inputs of the model.
    target_name, id_name : str, default=""
        Columns of a table.
    centre, spread : float, default=0.0 and 1.0
        Mean and deviation of the target of a regression, which the model has learned standardised.
    interval : Interval or None, default=None
        For the intervals of a regression.
    calibration : Calibration or None, default=None
        Probabilities from outputs, for classifiers without.
    row_shape, row_type : tuple of int and str
        Shape and type of a row of an array, before it is encoded.
    target_written : str, default=""
        How the target was written, as in :class:`tensorswitch.compare.Problem`.
    """

    model: Any
    encoder: TableEncoder | Preparation
    method: str
    class_names: tuple[str, ...] | None
    front: Front = Front()
    target_name: str = ""
    id_name: str = ""
    centre: float = 0.0
    spread: float = 1.0
    interval: Interval | None = None
    calibration: Calibration | None = None
    row_shape: tuple[int, ...] = ()
    row_type: str = ""
    target_written: str = ""

    def inputs(self, rows: Any) -> np.ndarray:
        """Return what the model is given.

        Parameters
        ----------
        rows : Table or ndarray
            Raw rows.

        Returns
        -------
        ndarray
            The inputs.
        """
        return self.front(rows if self.front.images else self.encoder(rows))

    def predict(self, rows: Any) -> Predictions:
        """Predict rows.

        Parameters
        ----------
        rows : Table or ndarray
            Raw rows.

        Returns
        -------
        Predictions
            Classes and probabilities, or numbers and intervals.
        """
        x = self.inputs(rows)
        if self.class_names is None:
            values, deviations = predicted_numbers(self, x)
            low = high = None
            if self.interval is not None:
                # Deviations need memory, and there is no interval in their units without them.
                unit: Any = deviations if self.interval.scaled else 1.0
                if unit is not None:
                    low = values + self.interval.low * unit
                    high = values + self.interval.high * unit
            return Predictions(None, values=values, low=low, high=high)
        codes, probabilities = predicted_classes(self.model, x, self.calibration)
        probabilities = all_classes(self.model, probabilities, len(self.class_names))
        return Predictions(list(self.class_names), probabilities, codes=codes)

    def save(self, path: Path) -> None:
        """Write everything to one safetensors file, atomically; nothing is pickled.

        Parameters
        ----------
        path : Path
            The file.
        """
        notes = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "model"}
        save_estimator(self.model, path, **notes)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that :meth:`save` wrote.

        Parameters
        ----------
        path : Path
            The file.

        Returns
        -------
        Predictor
            The predictor.
        """
        model, notes = load_estimator_with_notes(path)
        known = {f.name for f in fields(cls)}
        if not {"encoder", "method", "class_names"} <= notes.keys() or not notes.keys() <= known:
            raise ValueError(
                f"{path} does not describe the preparation of its inputs; "
                "use a model written by `tensorswitch train`"
            )
        return cls(model, **notes)


def predicted_numbers(predictor: Predictor, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return predictions of a regression in the units of the target.

    Parameters
    ----------
    predictor : Predictor
        The model.
    x : ndarray
        Its inputs.

    Returns
    -------
    values : ndarray of shape (rows,)
        Predictions.
    deviations : ndarray of shape (rows,) or None
        Standard deviations, if the model has them and they fit into memory.
    """
    deviations = None
    if "return_std" in inspect.signature(predictor.model.predict).parameters:
        try:
            values, deviations = predictor.model.predict(x, return_std=True)
            deviations = np.maximum(deviations, 1e-12) * predictor.spread
        except MemoryError:
            values = predictor.model.predict(x)
    else:
        values = predictor.model.predict(x)
    return np.asarray(values, dtype=float) * predictor.spread + predictor.centre, deviations


def predicted_classes(
    model: Any, x: np.ndarray, calibration: Calibration | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the classes that a model predicts, and their probabilities if it has them.

    Parameters
    ----------
    model : estimator
        A classifier whose classes are indices.
    x : ndarray
        Its inputs.
    calibration : Calibration, optional
        Probabilities from the decision function, for models without.

    Returns
    -------
    codes : ndarray of int of shape (rows,)
        Predicted classes.
    probabilities : ndarray of shape (rows, classes) or None
        Their probabilities.
    """
    if hasattr(model, "predict_proba"):
        probabilities = np.asarray(model.predict_proba(x), dtype=float)
        return np.asarray(model.classes_)[probabilities.argmax(1)].astype(int), probabilities
    codes = np.asarray(model.predict(x)).astype(int)
    if calibration is None:
        return codes, None
    return codes, calibration.probabilities(decisions(model, x))


def all_classes(model: Any, probabilities: np.ndarray | None, classes: int) -> np.ndarray | None:
    """Return probabilities with a column for each class, zero for those that were not seen.

    Parameters
    ----------
    model : estimator
        A classifier whose classes are indices.
    probabilities : ndarray of shape (rows, classes of the model), or None
        Its probabilities.
    classes : int
        Number of all classes.

    Returns
    -------
    ndarray of shape (rows, classes), or None
        The probabilities.
    """
    if probabilities is None or probabilities.shape[1] == classes:
        return probabilities
    every = np.zeros((len(probabilities), classes))
    every[:, np.asarray(model.classes_).astype(int)] = probabilities
    return every


def decisions(model: Any, x: np.ndarray) -> np.ndarray:
    """Return the decision function with a column per class, one column for two classes.

    Parameters
    ----------
    model : estimator
        A classifier.
    x : ndarray
        Its inputs.

    Returns
    -------
    ndarray of shape (rows, classes) or (rows, 1)
        The decision function.
    """
    outputs = np.asarray(model.decision_function(x), dtype=float)
    return outputs[:, None] if outputs.ndim == 1 else outputs


class NetworkModel:
    """A network as a classifier.

    Parameters
    ----------
    network : Network
        The network.
    classes : int
        Number of its classes.
    """

    def __init__(self, network: Network, classes: int) -> None:
        self.network, self.classes_ = network, np.arange(classes)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        x : ndarray of shape (rows, ...)
            Inputs.

        Returns
        -------
        ndarray of shape (rows, classes)
            The probabilities.
        """
        return Learner(self.network).outputs(torch.from_numpy(x)).double().softmax(1).numpy()


def load_predictor(path: str | Path) -> Predictor:
    """Read the model of a run.

    Parameters
    ----------
    path : str or Path
        A ``model.safetensors``, or the output folder of ``tensorswitch train``.

    Returns
    -------
    Predictor
        The model.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or not a model for rows of files.
    """
    path = Path(path) / MODEL if Path(path).is_dir() else Path(path)
    try:
        read_header(path, "tensorswitch.estimator")
    except ValueError:
        return _network_predictor(path)
    return Predictor.load(path)


def _network_predictor(path: Path) -> Predictor:
    """Read a network that :func:`train_network` wrote."""
    network, notes = load_with_notes(path, Network)
    advice = "use a model written by `tensorswitch train`"
    if "mean" not in notes or "class_names" not in notes:
        raise ValueError(f"{path} does not describe the preparation of its inputs; {advice}")
    try:
        return _described_predictor(network, notes)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the description in {path} is not valid ({error}); {advice}") from error


def _described_predictor(network: Network, notes: dict[str, Any]) -> Predictor:
    arrays = {name: notes.get(name) for name in ("basis", "scale")}
    preparation = Preparation(notes["mean"], flat=notes["flat"], **arrays)
    names = tuple(notes["class_names"])
    outputs = network.description["out_features"]
    if len(names) != outputs:
        raise ValueError(f"{len(names)} classes for {outputs} outputs")
    model = NetworkModel(network, len(names))
    table = notes.get("table")
    encoder = preparation if table is None else table["encoder"]
    front = Front() if table is None else Front(preparation=preparation)
    return Predictor(
        model,
        encoder,
        network.description.get("kind", "network"),
        names,
        front,
        target_name="" if table is None else table["target"],
        id_name="" if table is None else table["id"],
        target_written="" if table is None else table.get("target_written", ""),
        row_shape=tuple(notes.get("shape", ())),
        row_type=notes.get("type", ""),
    )
