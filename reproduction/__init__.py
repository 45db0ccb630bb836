"""Reproduce the table and the figures of the paper, each with one command.

``python -m reproduction all --scale smoke`` runs the experiments of Tsai, Saxe and Cox, "Tensor
Switching Networks" (NIPS 2016), and writes table 1 and figures 2, 4 and 5 with a report. Finished
experiments are never repeated, and interrupted ones resume from their last checkpoint. ``python -m
reproduction run`` is for one experiment and ``sweep`` for grids of them. The package uses the
public names of :mod:`tensorswitch`.
"""

from reproduction.experiment import METHODS, Experiment, Result
from reproduction.grid import experiments_from_toml
from reproduction.paper import PARTS, Reproduction, reproduce
from reproduction.records import Record, records_in, run_one
from reproduction.running import run, with_fingerprints
from reproduction.sweeps import Sweep, sweep

__all__ = [
    "METHODS",
    "PARTS",
    "Experiment",
    "Record",
    "Reproduction",
    "Result",
    "Sweep",
    "experiments_from_toml",
    "records_in",
    "reproduce",
    "run",
    "run_one",
    "sweep",
    "with_fingerprints",
]
