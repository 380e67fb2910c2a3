"""Code that lies in a channel, as jobs without a network have it."""

import os

from sagehen.scriptrunner.faults import CannotRun
from sagehen.scriptrunner.folders import Folders

__all__ = ["bring_code"]


def bring_code(folders: Folders, submitted: str | None) -> None:
    """Have the code in its folder. What lay in S3 is there already.

    Args:
        submitted: sagemaker_submit_directory.

    Raises:
        CannotRun: there is none, or it cannot be unpacked.
    """
    os.makedirs(folders.code, exist_ok=True)
    if os.listdir(folders.code):
        return
    if submitted is None:
        raise CannotRun(
            "The hyperparameter sagemaker_submit_directory is missing: it names the archive with "
            "the script, s3://BUCKET/KEY.tar.gz. Estimators with an entry_point make it."
        )
    if submitted.startswith("s3://"):
        raise CannotRun(f"The archive {submitted} (sagemaker_submit_directory) has no files.")
    path = folders.local(submitted)
    if os.path.isdir(path):
        import shutil

        shutil.copytree(path, folders.code, dirs_exist_ok=True)
    else:
        _unpack(path, folders.code, submitted)


def _unpack(path: str, folder: str, shown: str) -> None:
    import tarfile

    try:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, EOFError) as problem:
        raise CannotRun(
            f"The archive {shown} (sagemaker_submit_directory) cannot be unpacked: {problem}."
        ) from problem
