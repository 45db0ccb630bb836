"""The HTTP example answers as the model does."""

import anyio
import httpx
import numpy as np
import pytest

import tensorswitch
from examples.service import service
from tensorswitch.compare import load_problem, train
from tests.compare.test_questions import patients


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    patients(200).to_csv(folder / "patients.csv", index=False)
    problem = load_problem(folder / "patients.csv", target="ill")
    train(problem, "rr", folder / "ill", settings={"gates": 8})
    numbers = load_problem(folder / "patients.csv", target="x")
    train(numbers, "rr", folder / "x", settings={"gates": 8})
    return folder


def post(folder, **content):
    """The answer of the service of a folder, without a server."""

    async def ask():
        transport = httpx.ASGITransport(app=service(folder))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/predict", **content)

    return anyio.run(ask)


def test_rows_are_answered(run):
    row = {"patient_id": 101, "day": "2020-03-01", "x": None}
    answer = post(run / "ill", json=[row, row | {"x": 2.0}])
    assert answer.status_code == 200
    found = tensorswitch.load(run / "ill").predict([row, row | {"x": 2.0}])
    assert answer.json()["predictions"] == found.labels.tolist()
    np.testing.assert_allclose(answer.json()["probabilities"], found.probabilities, rtol=1e-9)
    number = post(run / "x", json=row).json()
    (low,), (high,) = number["intervals"]
    assert low <= number["predictions"][0] <= high


@pytest.mark.parametrize("body", ["[1, 2", "[1, 2]", '{"other": 1}'])
def test_what_is_no_row_is_refused(run, body):
    answer = post(run / "ill", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]
