"""Run experiments and keep one result file for each.

:func:`run` runs one :class:`Experiment`, :func:`sweep` runs many of them on local processes or on a
Dask cluster, and :func:`compare` runs several methods on one data set. Finished experiments are
never repeated, and interrupted ones resume from their last checkpoint. :func:`train_method` and
:func:`train_network` keep one model, which :func:`load_predictor` reads.
"""

from tensorswitch.experiments.comparison import Comparison, compare
from tensorswitch.experiments.experiment import METHODS, Experiment, Result
from tensorswitch.experiments.grid import experiments_from_toml
from tensorswitch.experiments.networks import TrainedNetwork, predict_network, train_network
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.experiments.predictor import Predictor, load_predictor
from tensorswitch.experiments.records import Record, compact_records, records_in, run_one
from tensorswitch.experiments.runner import run, untrained, with_fingerprints
from tensorswitch.experiments.sweeps import Sweep, sweep
from tensorswitch.experiments.trained import train_method

__all__ = [
    "METHODS",
    "Comparison",
    "Experiment",
    "Predictions",
    "Predictor",
    "Record",
    "Result",
    "Sweep",
    "TrainedNetwork",
    "compact_records",
    "compare",
    "experiments_from_toml",
    "load_predictor",
    "predict_network",
    "records_in",
    "run",
    "run_one",
    "sweep",
    "train_method",
    "train_network",
    "untrained",
    "with_fingerprints",
]
