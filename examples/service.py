"""
Serve a model over HTTP
=======================

A service for a model that ``tensorswitch train`` wrote, with Starlette::

    pip install '.[teach]'
    MODEL=run uvicorn --factory examples.service:service

POST a row, or a list of rows, as JSON to /predict::

    curl localhost:8000/predict -d '{"size": 120, "kind": "flat", "built": "2004-05-01"}'
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

import tensorswitch

if TYPE_CHECKING:
    from starlette.requests import Request


def service(path: str | None = None) -> Starlette:
    """Return the application for a model, by default the one that MODEL names."""
    model = tensorswitch.load(path or os.environ.get("MODEL", "run"))

    async def predict(request: Request) -> JSONResponse:
        try:
            found = await run_in_threadpool(model.predict, json.loads(await request.body()))
        except (TypeError, ValueError) as error:  # not JSON, or not rows of this model
            return JSONResponse({"error": str(error)}, status_code=400)
        answer: dict[str, Any] = {"predictions": found.labels.tolist(), "notes": found.notes}
        if found.probabilities is not None:
            answer["classes"] = found.class_names
            answer["probabilities"] = found.probabilities.tolist()
        if found.low is not None and found.high is not None:
            answer["intervals"] = [found.low.tolist(), found.high.tolist()]
        return JSONResponse(answer)

    return Starlette(routes=[Route("/predict", predict, methods=["POST"])])
