"""Grids of several methods: shared settings reach those that use them."""

import pytest

from reproduction import experiments_from_toml


def experiments(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return experiments_from_toml(path)


def test_a_shared_setting_does_not_block_methods_without_it(tmp_path):
    found = experiments(
        tmp_path,
        'data = "digits"\nlr = [0.1, 0.01]\n[[grid]]\nmethod = ["ss", "rr", "svm-ts"]\n'
        "width = 8\nseed = [0, 1]\n",
    )
    counts = {m: sum(e.method == m for e in found) for m in ("ss", "rr", "svm-ts")}
    assert counts == {"ss": 4, "rr": 2, "svm-ts": 1}  # without lr and seed the others are the same
    assert {e.lr for e in found if e.method == "ss"} == {0.1, 0.01}


def test_settings_of_another_grid_count_too(tmp_path):
    text = 'data = "digits"\nlr = 0.1\n[[grid]]\nmethod = "ss"\n[[grid]]\nmethod = "rr"\n'
    assert [e.method for e in experiments(tmp_path, text)] == ["ss", "rr"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('method = "rr"\nlr = 0.1\n', "method rr does not use lr"),  # nobody does
        ('method = ["rr", "ss"]\nlrr = 0.1\n', "unknown settings lrr"),
        ('method = ["rr", "magic"]\n', "unknown method 'magic'"),
    ],
)
def test_a_setting_that_no_method_uses_is_a_mistake(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        experiments(tmp_path, f'data = "digits"\n{text}')


def test_a_precision_is_part_of_an_experiment_only_if_it_is_given(tmp_path):
    (plain,) = experiments(tmp_path, 'data = "digits"\nmethod = "ss"\n')
    assert "precision" not in plain.settings
    (half,) = experiments(tmp_path, 'data = "digits"\nmethod = "ss"\nprecision = "bf16"\n')
    assert half.settings == {**plain.settings, "precision": "bf16"}


def test_a_grid_in_a_file(tmp_path):
    found = experiments(
        tmp_path,
        """
        data = "digits"
        [[grid]]
        method = ["ss", "ts-lrc"]
        depth = [1, 2, 3]
        [[grid]]
        method = "svm-ts"
        depths = [[1, 2]]
        """,
    )
    assert len(found) == 7
    assert found[-1].depths == (1, 2)
    assert {e.depth for e in found[:6]} == {1, 2, 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = ", "is not a valid TOML file"),
        ("grid = 3", r"grids must be written as \[\[grid\]\] tables"),
        ("data = 'digits'\n[[grid]]\nmethod = 'sss'", "grid 1: unknown method 'sss'"),
        ("data = 'digits'\nmethod = 'ss'\ndepth = []", "defines no experiments"),
        ("a = " + "[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        experiments(tmp_path, text)
    with pytest.raises(ValueError, match="does not exist"):
        experiments_from_toml(tmp_path / "none.toml")
