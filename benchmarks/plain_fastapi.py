"""The other side of the comparison: the same model behind plain FastAPI, as one would write it."""

import os

import numpy as np
import xgboost
from fastapi import FastAPI, Request, Response

booster = xgboost.Booster()
booster.load_model(os.environ["BENCHMARK_MODEL"])
booster.set_param({"nthread": 1})
app = FastAPI()


@app.post("/invocations")
async def invocations(request: Request) -> Response:
    """One CSV row in, one number out."""
    row = (await request.body()).decode().strip().split(",")
    prediction = booster.inplace_predict(np.array([row], dtype=np.float32))[0]
    return Response(str(prediction), media_type="text/csv")
