"""What the Hugging Face container is told: which model, for which task."""

from collections.abc import Mapping
from dataclasses import dataclass

from sagehen.container.variables import switch

__all__ = ["HuggingFaceSettings", "read_hugging_face"]


@dataclass(frozen=True, kw_only=True)
class HuggingFaceSettings:
    """`""` where nothing is said."""

    task: str
    model_id: str
    """A folder, or a name on the Hugging Face Hub; it goes before the model's archive."""
    revision: str
    token: str
    trust_remote_code: bool


def read_hugging_face(environ: Mapping[str, str]) -> HuggingFaceSettings:
    """Raises SettingError."""
    return HuggingFaceSettings(
        task=environ.get("HF_TASK", ""),
        model_id=environ.get("HF_MODEL_ID", ""),
        revision=environ.get("HF_MODEL_REVISION", ""),
        token=environ.get("HF_API_TOKEN", "") or environ.get("HF_TOKEN", ""),
        trust_remote_code=switch(environ, "HF_TRUST_REMOTE_CODE") or False,
    )
