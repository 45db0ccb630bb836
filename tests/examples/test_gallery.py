"""The tutorials run, without warnings, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def printed(monkeypatch, capsys):
    """Run a tutorial as a program; return what it prints."""

    def run(name):
        (path,) = EXAMPLES.glob(f"plot_*_{name}.py")
        monkeypatch.chdir(EXAMPLES)
        plt.switch_backend("Agg")
        monkeypatch.setattr(plt, "show", lambda: None)
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            plt.close("all")
        return capsys.readouterr().out

    return run


def differences(text):
    return [float(found) for found in re.findall(r"differ by (\S+e-\d+)", text)]


def test_every_tutorial_has_a_test():
    tested = set(re.findall(r'printed\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert tested == {path.stem.split("_", 2)[2] for path in EXAMPLES.glob("plot_*.py")}


def test_table(printed):
    pytest.importorskip("skrub")
    text = printed("table")
    assert float(re.search(r"new rows ([\d.]+)", text)[1]) > 0.95
    assert float(re.search(r"new flats ([\d.]+)", text)[1]) > 0.75
    output, shares, constant = map(
        float, re.findall(r"(?:output|shares|constant) (-?[\d.]+)", text)
    )
    assert output == pytest.approx(shares + constant, abs=2e-4)


def test_stream(printed):
    text = printed("stream")
    kept, faded = (float(found) for found in re.findall(r": ([\d.]+) in the last", text))
    assert kept < 0.5 < 0.8 < faded
    assert float(re.search(r"outputs: (\S+)", text)[1]) < 1e-9


def test_images(printed):
    text = printed("images")
    few, many = (float(found) for found in re.findall(r"([\d.]+) % wrong", text))
    assert many < 5 < few
    assert float(re.search(r"outputs by (\S+)", text)[1]) < 1e-4


def test_torch(printed):
    text = printed("torch")
    (relu, *ts) = (float(found) for found in re.findall(r"([\d.]+) % wrong after one", text))
    assert max(ts) < 10 < relu
    assert differences(text)[0] < 1e-4
    total, output = re.search(r"add up to (\S+), the output is (\S+)", text).groups()
    assert float(total) == pytest.approx(float(output), abs=1e-3)


def test_kernels(printed):
    assert float(re.search(r"R² ([\d.]+)", printed("kernels"))[1]) > 0.9


def test_learn_and_forget(printed):
    text = printed("learn_and_forget")
    assert float(re.search(r"([\d.]+) % right", text)[1]) > 92
    assert len(differences(text)) == 3
    assert max(differences(text)) < 1e-7


def test_machines(printed):
    pytest.importorskip("dask")
    text = printed("machines")
    one, ranks = (float(found) for found in re.findall(r"([\d.]+) % right", text))
    assert ranks == pytest.approx(one, abs=1)
    assert len(differences(text)) == 2
    assert max(differences(text)) < 1e-7


def test_paper(printed):
    text = printed("paper")
    assert text.count("True") == 2
    scalar, *tensor = (float(found) for found in re.findall(r"([\d.]+) % wrong", text))
    assert max(tensor) < 40 < scalar


@pytest.mark.xdist_group("torchrun")  # one rendezvous at a time
def test_training(printed):
    pytest.importorskip("tensorboard")
    text = printed("training")
    assert "8 epochs; the loss is that of a run without a pause: True" in text
    assert "best.safetensors, checkpoint.safetensors, history.csv, history.json" in text
    assert "refused: " in text
    assert "4 epochs: " in text
    errors = [float(found) for found in re.findall(r"([\d.]+) % wrong", text)]
    assert errors[0] < 15
