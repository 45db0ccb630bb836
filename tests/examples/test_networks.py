import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def errors(printed):
    return [float(e) for e in re.findall(r"test error ([\d.]+) %", printed)]


def test_the_residual_network_learns(capsys):
    runpy.run_path(str(EXAMPLES / "resnet.py"))["main"](2)
    found = errors(capsys.readouterr().out)
    assert len(found) == 2
    assert found[-1] < 20  # a guess is at 90


def test_the_transformer_runs_and_compiles(capsys):
    example = runpy.run_path(str(EXAMPLES / "transformer.py"))
    example["main"](5)
    assert len(errors(capsys.readouterr().out)) == 5
    network = example["Transformer"]().eval()
    digits, marks, _ = example["task"](3)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(digits, marks), network(digits, marks))


@pytest.mark.slow
def test_the_transformer_learns(capsys):
    runpy.run_path(str(EXAMPLES / "transformer.py"))["main"]()
    assert errors(capsys.readouterr().out)[-1] < 50  # a guess is at 90
