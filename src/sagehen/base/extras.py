"""The pip requirements of each extra, and the advice to install them.

Names libraries instead of the extra: that works however Sagehen itself was installed.
"""

import importlib.util
from typing import Final

from sagehen.base.errors import Unavailable

__all__ = ["EXTRAS", "missing_library", "pip_install", "require_library"]

_XGBOOST: Final = ("xgboost-cpu>=3.0.5,<3.1", "scikit-learn>=1.5,<1.8", "pandas>=2.2.3,<3")

EXTRAS: Final = {
    "xgboost": _XGBOOST,
    "sklearn": ("scikit-learn>=1.5", "pandas>=2.2.3,<3"),
    "lightgbm": ("lightgbm>=4.3", "scikit-learn>=1.5"),
    "onnx": ("onnxruntime>=1.18",),
    "tensorflow": ("tensorflow-cpu>=2.16",),
    "torch": ("torch>=2.4",),
    "huggingface": ("torch>=2.4", "transformers>=4.57"),
    "docker": ("docker>=7.1",),
    "parquet": ("pyarrow>=17",),
    "ray": ("ray>=2.55",),
    "postgres": ("psycopg[binary]>=3.2",),
    "demo": _XGBOOST,
}
"""by extra; a test compares them with pyproject.toml"""

_TORCH_CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"


def pip_install(extra: str) -> str:
    libraries = EXTRAS[extra]
    command = "pip install " + " ".join(f"'{library}'" for library in libraries)
    if any(library.startswith("torch") for library in libraries):
        command += f" (without a GPU add --extra-index-url {_TORCH_CPU_INDEX}: no CUDA then)"
    return command


def missing_library(name: str, extra: str) -> Unavailable:
    return Unavailable(
        f"{name} is not installed. In the Python environment that Sagehen runs in: "
        f"{pip_install(extra)}"
    )


def require_library(package: str, name: str, extra: str) -> None:
    """Raises Unavailable if the package is missing; does not import it."""
    if importlib.util.find_spec(package) is None:
        raise missing_library(name, extra)
