"""Learners on one problem: which is best, what it sees, and a file that predicts further rows.

    problem → splits → encoder → learner → record → report

A learner is a scikit-learn estimator; :data:`LEARNERS` has this library's and scikit-learn's.
"""

from tensorswitch.compare._comparison import Comparison, compare
from tensorswitch.compare._fitting import train
from tensorswitch.compare._learners import LEARNERS, Learner
from tensorswitch.compare._metrics import Predictions
from tensorswitch.compare._predictor import Predictor, load_predictor
from tensorswitch.compare._problem import Problem, load_problem
from tensorswitch.compare._report import write_report
from tensorswitch.compare._rows import predict_rows

__all__ = [
    "LEARNERS",
    "Comparison",
    "Learner",
    "Predictions",
    "Predictor",
    "Problem",
    "compare",
    "load_predictor",
    "load_problem",
    "predict_rows",
    "train",
    "write_report",
]
