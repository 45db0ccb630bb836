"""Documentation that the ridge classifier and regressor share."""

from __future__ import annotations

from tensorswitch.estimators._documented import with_shared

__all__ = ["documented"]

PARAMETERS = """gates : "auto", int or sequence of int, default="auto"
        Number of gates of each layer, ``(n_1, …, n_L)``. An integer is a single layer. "auto" is
        one layer with about 4,096 features in all, of 16 to 256 gates.
    alpha : float, str or a sequence of these, default="cv"
        The ridge penalty λ: a number; "mean", the mean of the diagonal of the (centred) Gram matrix
        ``Σ z zᵀ``, as in the paper, or a multiple of it such as "0.1 mean"; or several of these,
        among which ``selection`` chooses. "cv" and "gcv" stand for multiples from 1,000 to 3e-5 and
        how to choose among them.
    switch : Switch or {"relu", "maxout", "maxout:PIECES", "none"}, default="relu"
        The rule that opens the gates; see :func:`tensorswitch.switches.as_switch`. With maxout,
        ``gates`` must be multiples of the number of pieces per unit.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        "streaming" accumulates a Gram matrix, "matrix-free" runs conjugate gradients, and "dual"
        factorises a kernel matrix, for few rows. All compute the same solution. "auto" picks the
        one with the least estimated work that fits into memory and logs the reason.
    standardize : {"auto", True, False, "common"} or pair of array-likes, default="auto"
        Scaling of the inputs. True subtracts the mean of each column and divides by its standard
        deviation; "common" divides all columns by one number, which suits pixels and principal
        components, where rare columns would be amplified noise; "auto" picks one of these by
        leave-one-out error on a sample of rows; False leaves inputs as they are. ``fit`` takes
        means and deviations from all rows, ``partial_fit`` from the first chunk. They can also be
        given as a pair of means and standard deviations.
    components : int, optional
        Number of principal components to project on first. They are fitted by ``fit`` on all rows
        and by ``partial_fit`` on the first chunk. By default there is no projection.
    fit_intercept : bool, default=True
        Whether gates and readout have biases: a constant input is appended, the first gate of
        each layer is always open (with maxout, the other pieces of its unit are always closed), and
        an intercept is added that is not penalised. The paper's networks have none: they are
        ``standardize=False, fit_intercept=False``.
    selection : {"cv", "gcv"}, default="cv"
        How one of several ``alpha`` is chosen. "cv" is exact cross-validation of the squared error:
        leave-one-out in the dual solver, where identical rows are left out together, and five folds
        in the others (a single one of them with more than 20,000 rows). A row's fold is a hash of
        its content, so order, chunks and repeated rows make no difference. "gcv" is generalised
        cross-validation [2]_, which repeated rows mislead.
    tol : float, default=1e-4
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=500
        Maximum number of iterations of conjugate gradients.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each ``partial_fit`` multiplies the previous sums, for data that
        drifts.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available when fitting.
"""

LAST_PARAMETERS = """random_state : int, RandomState instance or None, default=None
        Seed of the gate weights.
    verbose : bool, default=False
        Show a progress bar for conjugate gradients.
"""

ATTRIBUTES = """gate_weights_ : list of ndarray of shape (n_l, n_{l-1})
        The gate weights of each layer.
    coef_ : ndarray of shape (n_L, …, n_1, n_inputs, n_outputs)
        The readout. With an intercept, the last input is the constant one.
    intercept_ : ndarray of shape (n_outputs,)
        The intercept, zero without one.
    alpha_ : float
        The penalty λ that was used.
    solver_ : str
        The solver that was used.
    scaling_ : str
        "columns", "common", "given" or "none".
    solution_ : Solution
        The readout with λ, the number of iterations and, if several values of λ were tried, the
        error of each.
    n_iter_ : int
        Number of iterations of conjugate gradients, 1 for the direct solvers.
    n_features_in_ : int
        Number of features seen during fit.
"""

REFERENCES = """References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.
    .. [2] G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation as a Method for
       Choosing a Good Ridge Parameter", Technometrics 21(2), 1979.
"""


documented = with_shared(
    {
        "parameters": PARAMETERS,
        "last parameters": LAST_PARAMETERS,
        "attributes": ATTRIBUTES,
        "references": REFERENCES,
    }
)
