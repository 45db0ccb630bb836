"""Files that version 1 of the format has written load and give the same, for ever."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tensorswitch import persistence
from tensorswitch.compare import Predictor
from tensorswitch.estimators import load_estimator_with_notes
from tests.files.write import TEST, X, fitted, frame, objects, outputs_of

FOLDER = Path(__file__).parent / "files" / "version1"
PATHS = sorted(FOLDER.glob("*.safetensors"))


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_a_file_of_version_1_gives_the_same(path):
    value, notes = persistence.load_with_notes(path)
    if "rows" in notes:
        value, notes = load_estimator_with_notes(path)
        found = outputs_of(value, notes["rows"])
    elif isinstance(value, torch.nn.Module):
        with torch.no_grad():
            found = value.eval()(torch.from_numpy(X[TEST]).float()).numpy()
    elif isinstance(value, Predictor):
        found = value.predict(frame()).probabilities
    else:
        found = value.solve(0.1).weight.numpy()
    np.testing.assert_allclose(found, notes["outputs"], rtol=1e-4, atol=1e-5)


def test_there_is_a_file_of_each_kind():
    written = {name for name, *_ in fitted()} | {name for name, *_ in objects()}
    written |= {"predictor"}
    assert written <= {path.stem for path in PATHS}
