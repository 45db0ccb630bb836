import numpy as np
import pytest
import torch

from tensorswitch import SwitchedConv2d, SwitchedLinear, TensorSwitching
from tensorswitch.nn import to_onnx

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore")

LAYERS = {
    "linear": (lambda: SwitchedLinear(6, 8, 4, gate_bias=True), (6,)),
    "pooled": (lambda: SwitchedConv2d(2, 8, 4, 3, pool=2, gate_bias=True), (2, 6, 6)),
    "deep": (lambda: TensorSwitching(6, (5, 3), 4, gate_bias=True), (6,)),
}
MORE = {
    "maxout": (lambda: SwitchedLinear(6, 8, 4, switch="maxout"), (6,)),
    "conv": (lambda: SwitchedConv2d(2, 8, 4, 3, padding=1), (2, 5, 6)),
}


def run(path, x):
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def check(layer, shape, path):
    layer.train()
    to_onnx(layer, torch.randn(2, *shape), path)
    assert layer.training
    for rows in (1, 7):
        x = torch.randn(rows, *shape)
        np.testing.assert_allclose(run(path, x.numpy()), layer(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_run_in_onnx_runtime(name, tmp_path):
    build, shape = LAYERS[name]
    check(build(), shape, tmp_path / "layer.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_layers_run_in_onnx_runtime(name, tmp_path):
    build, shape = MORE[name]
    check(build(), shape, tmp_path / "layer.onnx")


def test_missing_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs onnx and onnxscript: pip install 'tensorswitch"):
        to_onnx(SwitchedLinear(2, 2, 2), torch.randn(2, 2), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())
