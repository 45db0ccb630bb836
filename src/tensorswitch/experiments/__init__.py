"""Experiments: one, many, or several methods side by side, with a result file each.

:func:`run` does one :class:`Experiment`; :func:`sweep` does many, on local processes or a Dask
cluster; :func:`compare` does one data set with several methods. What is finished is never done
again, and what was stopped goes on from its last checkpoint.
"""

from tensorswitch.experiments.comparison import Comparison, compare
from tensorswitch.experiments.experiment import METHODS, Experiment, Result
from tensorswitch.experiments.grid import experiments_from_toml
from tensorswitch.experiments.records import Record, records_in, run_one
from tensorswitch.experiments.runner import run, untrained, with_fingerprints
from tensorswitch.experiments.sweeps import Sweep, sweep

__all__ = [
    "METHODS",
    "Comparison",
    "Experiment",
    "Record",
    "Result",
    "Sweep",
    "compare",
    "experiments_from_toml",
    "records_in",
    "run",
    "run_one",
    "sweep",
    "untrained",
    "with_fingerprints",
]
