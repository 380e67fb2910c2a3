"""The model server's exit status for its agent, and hints about modules that only AWS's images
have."""

import re

__all__ = ["WILL_NOT_LOAD", "hint"]

WILL_NOT_LOAD = 65
"""EX_DATAERR of sysexits.h: the model does not load, and another start would not help"""


_MISSING = re.compile(r"ModuleNotFoundError: No module named '(sagemaker(?:_\w+)?)(?:\.[\w.]+)?'")
_PACKAGES = {
    "sagemaker": "sagemaker",
    "sagemaker_containers": "sagemaker-containers",
    "sagemaker_huggingface_inference_toolkit": "sagemaker-huggingface-inference-toolkit",
    "sagemaker_inference": "sagemaker-inference",
    "sagemaker_training": "sagemaker-training",
}


def hint(text: str) -> str:
    """Returns "" for other errors."""
    match = _MISSING.search(text)
    if match is None:
        return ""
    module = match[1]
    if module in _PACKAGES:
        advice = f"name {_PACKAGES[module]} in the requirements.txt beside the script"
    else:
        advice = "no package has it, so write the script without it"
    return f" ({module} is in AWS's images and not here: {advice})"
