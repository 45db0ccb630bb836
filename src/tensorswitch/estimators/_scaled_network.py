"""A network between scalings: what the estimators with a network fit and apply."""

import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import nn

from tensorswitch._checks import from_numpy
from tensorswitch.estimators._base import State, Weights
from tensorswitch.estimators._modules import Steps, Unscaled
from tensorswitch.explain import Explanation, explain
from tensorswitch.linear._rows import row_hashes
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing import Scaling
from tensorswitch.training import Learner, Rows


@saved_as("scaled-network")
@dataclass
class ScaledNetwork:
    """Scaling → network → learner.

        y = targets⁻¹( network( [inputs(x), constant] ) )

    The constant input, in standard deviations of the others, is missing if it is 0. ``settings``
    must not change while training goes on; ``unit_weight`` is the mean weight of the first rows.
    """

    inputs: Scaling
    targets: Scaling
    constant: float
    learner: Learner
    settings: State
    unit_weight: float = 1.0

    def rows(self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray, unit: float) -> Rows:
        """Return scaled rows for the learner, with weights in a unit."""
        parts = weight / unit
        shares = None if np.allclose(parts, 1, rtol=1e-12) else parts.astype(np.float32)
        if targets.dtype != np.int64:
            targets = self.targets(targets).astype(np.float32)
        return Rows.from_numpy(self._scaled(X), targets, shares).to(self.learner.device)

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        """Return what the network sees."""
        x = self.inputs(X)
        if self.constant:
            x = np.column_stack([x, np.full(len(x), self.constant)])
        return np.ascontiguousarray(x, dtype=np.float32)

    def outputs(self, X: np.ndarray) -> np.ndarray:
        """Return logits, or predictions in the units of the targets."""
        found = self.learner.outputs(from_numpy(self._scaled(X))).cpu().numpy()
        return found if self.targets.centre is None else self.targets.inverse(found.astype(float))

    def explain(self, X: np.ndarray) -> Explanation:
        """Return the contributions of the features to the outputs."""
        found = explain(self.learner.network, from_numpy(self._scaled(X)).to(self.learner.device))
        share, constant = found.contributions, found.constant
        if self.constant:  # the last input
            share, constant = share[..., :-1], constant + share[..., -1]
        if self.targets.centre is None:
            return Explanation(share, constant)
        return Explanation(share * self.targets.spread[:, None], self.targets.inverse(constant))

    def module(self) -> nn.Module:
        """Return all steps as one torch module on the CPU."""
        steps = Steps(self.inputs, constant=self.constant)
        layers = [steps, copy.deepcopy(self.learner.network)]
        if self.targets.centre is not None:
            layers.append(Unscaled(self.targets.centre, self.targets.spread))
        return nn.Sequential(*layers).cpu().eval()

    def state(self) -> State:
        """Return scalings, network and settings; the momenta of the optimiser are dropped."""
        learner = self.learner
        seed = learner.settings["seed"]
        training = {"loss": learner.loss_name, "seed": seed, **learner.options()}
        return {**vars(self), "learner": training, "network": learner.network}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model of a state, on the CPU."""
        rest = {name: value for name, value in state.items() if name != "network"}
        return cls(**{**rest, "learner": Learner(state["network"], **state["learner"])})


def distinct_rows(
    X: np.ndarray, targets: np.ndarray, weight: Weights
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge rows of equal inputs and targets, in any order, and drop those without weight."""
    weight = np.ones(len(X)) if weight is None else weight
    X, targets, weight = X[weight > 0], targets[weight > 0], weight[weight > 0]
    of_rows, of_targets = (
        row_hashes(from_numpy(np.ascontiguousarray(a))) for a in (X, targets.reshape(len(X), -1))
    )
    codes = (of_rows + 3 * of_targets).numpy()  # odd, so that no bits are lost
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    return X[first], targets[first], np.bincount(place, weight, len(first))


def start_at_zero(network: nn.Module) -> None:
    """Set the readout to zero: what a random one adds in directions without data would stay."""
    (*_, readout) = network.children()
    torch.nn.init.zeros_(readout.weight)  # type: ignore[arg-type]
