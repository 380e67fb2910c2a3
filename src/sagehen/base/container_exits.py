"""What the model server's exit status tells the agent that started it.

Modules that AWS's images have and this server has not: what to do where a script imports one.
"""

import re

__all__ = ["WILL_NOT_LOAD", "hint"]

WILL_NOT_LOAD = 65
"""EX_DATAERR of sysexits.h: the model did not load, for a reason that another start meets again."""


_MISSING = re.compile(r"ModuleNotFoundError: No module named '(sagemaker(?:_\w+)?)(?:\.[\w.]+)?'")
_PACKAGES = {
    "sagemaker": "sagemaker",
    "sagemaker_containers": "sagemaker-containers",
    "sagemaker_huggingface_inference_toolkit": "sagemaker-huggingface-inference-toolkit",
    "sagemaker_inference": "sagemaker-inference",
    "sagemaker_training": "sagemaker-training",
}
"""On PyPI, by the module."""


def hint(text: str) -> str:
    """What to say behind an error that names such a module; empty where it is another."""
    found = _MISSING.search(text)
    if found is None:
        return ""
    module = found[1]
    if module in _PACKAGES:
        what = f"name {_PACKAGES[module]} in the requirements.txt beside the script"
    else:
        what = "no package has it, so write the script without it"
    return f" ({module} is in AWS's images and not here: {what})"
