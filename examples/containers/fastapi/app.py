"""A model behind FastAPI on 8080: it answers with its name, the container's id and the body."""

import uuid
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

MODEL = Path("/opt/ml/model/name.txt").read_text().strip()
CONTAINER = uuid.uuid4().hex

app = FastAPI()


@app.get("/ping")
def ping() -> dict[str, str]:
    return {"status": "healthy"}


@app.post("/invocations", response_class=PlainTextResponse)
async def invocations(request: Request) -> str:
    body = (await request.body()).decode()
    return f"{MODEL} {CONTAINER} {body}"


if __name__ == "__main__":
    uvicorn.run(app, host="0.0.0.0", port=8080, access_log=False)
