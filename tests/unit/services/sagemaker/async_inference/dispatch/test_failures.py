"""What the notice of an asynchronous request says of a container's error."""

import pytest

from sagehen.services.sagemaker.async_inference.dispatch.failures import answered_with_error

SENTENCE = (
    "InternalServerError: Received server error (500) from model. See the SageMaker Endpoint logs "
    "in your account for more information."
)
TRACEBACK = b"""'city'
Traceback (most recent call last):
  File "/opt/ml/model/code/inference.py", line 5, in predict_fn
    raise KeyError('city')
KeyError: 'city'
"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (TRACEBACK, " (KeyError: 'city')"),
        (TRACEBACK[:60], " ('city')"),
        (b'{"code": 400, "type": "X", "message": "bad \\"row\\""}', ' (bad \\"row\\")'),
        (b"\n bad row\nat line 2", " (bad row)"),
        (b"x" * 400, f" ({'x' * 300}…)"),
        (b"\xff", " (\N{REPLACEMENT CHARACTER})"),
        (b"", ""),
    ],
)
def test_its_most_telling_line_stands_behind_sagemakers_sentence(said: bytes, line: str) -> None:
    assert answered_with_error(500, said).reason == SENTENCE + line
