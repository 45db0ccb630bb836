import numpy as np

from tensorswitch.paper import figure2


def test_the_published_panel_shows_the_kernels(tmp_path):
    left, right = figure2.draw().axes
    lines = {line.get_label(): line for line in left.lines}
    assert {"linear", "SS, L = 1", "SS, L = 3", "TS, L = 1", "TS, L = 3"} <= set(lines)
    theta, k = lines["TS, L = 1"].get_data()
    np.testing.assert_allclose(k, (1 - theta / np.pi) * np.cos(theta), atol=1e-12)
    assert len(right.lines) >= 2 * len(figure2.DEEP)


def test_it_is_written_as_png_and_svg(tmp_path):
    png, svg = figure2.save(tmp_path / "new")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["figure2.png", "figure2.svg"]
