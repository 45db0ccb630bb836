import numpy as np

from reproduction import figure2
from reproduction.figures import save_figure


def test_the_published_panel_shows_the_kernels():
    left, right = figure2.draw().axes
    lines = {line.get_label(): line for line in left.lines}
    assert {"linear", "SS, L = 1", "SS, L = 3", "TS, L = 1", "TS, L = 3"} <= set(lines)
    theta, k = lines["TS, L = 1"].get_data()
    np.testing.assert_allclose(k, (1 - theta / np.pi) * np.cos(theta), atol=1e-12)
    assert len(right.lines) >= 2 * len(figure2.DEEP)


def test_it_is_written_as_png_and_svg(tmp_path):
    png, svg = save_figure(figure2.draw(), tmp_path / "new", "figure2")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["figure2.png", "figure2.svg"]


def test_equal_figures_give_equal_files(tmp_path):
    first, second = (save_figure(figure2.draw(), tmp_path / name, "f") for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
