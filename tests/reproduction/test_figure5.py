import numpy as np
import pytest

from reproduction import Experiment, Record, Result, figure5
from reproduction.running import untrained


def test_signs_of_one_channel_are_red_and_blue():
    red, blue, zero = figure5.coloured(np.array([[[1.0, -1.0, 0.0]]]))[0]
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    np.testing.assert_allclose(zero, zero.mean(), atol=0.02)


def test_three_channels_are_colours_around_grey():
    weight = np.random.default_rng(0).normal(size=(3, 4, 5))
    colours = figure5.coloured(weight)
    expected = 0.5 + 0.5 * weight.transpose(1, 2, 0) / abs(weight).max()
    np.testing.assert_allclose(colours, expected, atol=0.5 / (figure5.LEVELS - 1) + 1e-9)


def test_filters_stand_in_two_rows_with_gaps():
    images = [np.full((32, 32, 3), number / 16) for number in range(16)]
    whole = figure5.mosaic(images)
    assert whole.shape == (66, 270, 3)
    assert whole[0, 0, 0] == 0
    assert whole[34, 34, 0] == pytest.approx(9 / 16)
    assert (whole[32:34] == 1).all()


def test_what_remains_of_the_start_is_told_and_taken_away():
    experiment = Experiment(data="digits", method="ts-ibp", width=16)
    start = untrained(experiment, 64, 10)
    result = Result(1, 1.0, best=0.25, filters=(0.5 * start).tolist(), filter_shape=[1, 8, 8])
    figure = figure5.draw([Record(experiment, result, None, {})])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "digits, inverted backpropagation: error 25.0 %",
        "digits, learned part (50 % of the start remains)",
    ]
