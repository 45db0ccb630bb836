"""Documentation that the classifier and the regressor with a network share."""

from __future__ import annotations

from tensorswitch.estimators._documented import with_shared

__all__ = ["documented"]

PARAMETERS = """hidden_layer_sizes : int or sequence of int, default=(100,)
        Number of units (gates) of each hidden layer.
    kind : {"ss+ts", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss"}, default="ss+ts"
        The network: "ss" is an ordinary ReLU network; "ss+ts" adds a readout of copies of the
        input, so that the gates learn as those of the ReLU network do
        (:class:`tensorswitch.JointSwitching`). The others are those of the paper: "ts-lrc"
        compresses the copies (LRC) and keeps its gates fixed; "ts-ibp-lrc" also trains the gates,
        by inverted backpropagation; "ts-ibp" trains the gates and does not compress.
    learn_gates : bool, optional
        Whether to train the gates of compressed layers. By default ``kind`` decides.
    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimiser.
    learning_rate_init : float or "auto", default="auto"
        The learning rate; by default 1e-3, and 2e-4 for "ts-lrc" on standardised columns.
    momentum : float, default=0.9
        Momentum of "sgd".
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    batch_size : int or "auto", default="auto"
        Number of rows per step; by default a sixteenth of them, at least 32 and at most 128, and
        200 if there are fewer than 300 rows.
    max_iter : int, default=200
        Maximum number of epochs.
    tol : float, default=1e-4
        Smallest decrease of the monitored quantity that counts as an improvement.
    n_iter_no_change : int, default=20
        Stop after this many epochs in a row without an improvement of the training loss or, with
        ``early_stopping``, of the validation loss.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out rows for validation and keep the weights of the best epoch; by default
        if there are at least 300.
    validation_fraction : float, default=0.1
        Fraction of the rows that ``early_stopping`` holds out.
    bias : bool, default=True
        Whether the layers have biases and, with ``standardize``, a constant input.
    standardize : bool, default=True
        Whether columns are centred and divided by their standard deviations, which are those of the
        first chunk in ``partial_fit``. The paper's experiments do not.
"""

LAST_PARAMETERS = """warm_start : bool, default=False
        Whether ``fit`` continues training the network of the previous ``fit``.
    random_state : int, RandomState instance or None, default=None
        Seed of the weights, of the order of the rows and of the validation split.
    device : str, default="cpu"
        The torch device to train on.
    verbose : bool, default=False
        Show a progress bar.
"""

ATTRIBUTES = """network_ : torch.nn.Module
        The network.
    n_iter_ : int
        Number of epochs.
    loss_ : float
        Training loss of the last epoch.
    loss_curve_ : list of float
        Training loss of each epoch.
    validation_curve_ : list of float
        Validation loss of each epoch; empty without ``early_stopping``.
    n_features_in_ : int
        Number of features seen during fit.
"""

REFERENCES = """References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.
"""

documented = with_shared(
    {
        "parameters": PARAMETERS,
        "last parameters": LAST_PARAMETERS,
        "attributes": ATTRIBUTES,
        "references": REFERENCES,
    }
)
