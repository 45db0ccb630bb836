"""Compare methods on one data set, and keep one model.

:func:`compare` runs several methods on one data set. :func:`train_method` and :func:`train_network`
keep one model, which :func:`load_predictor` reads.
"""

from tensorswitch.experiments.comparison import Comparison, compare
from tensorswitch.experiments.networks import TrainedNetwork, predict_network, train_network
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.experiments.predictor import Predictor, load_predictor
from tensorswitch.experiments.trained import train_method

__all__ = [
    "Comparison",
    "Predictions",
    "Predictor",
    "TrainedNetwork",
    "compare",
    "load_predictor",
    "predict_network",
    "train_method",
    "train_network",
]
