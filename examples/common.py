"""Parts that the examples share: small models to deploy, and a check against using AWS by mistake.

`python3 examples/common.py FOLDER` writes one archive per city, for the shell example.
"""

import os
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import xgboost

CITIES = ("Chicago_IL", "Houston_TX", "LosAngeles_CA", "NewYork_NY")
HOUSE = [1994, 3188, 5, 1.5, 1.62, 3]
"""year built, square feet, bedrooms, bathrooms, acres, garage spaces"""


def require_local_server() -> None:
    """The same code runs on AWS, where it costs money: do not let that happen unmeant."""
    if "AWS_ENDPOINT_URL" not in os.environ:
        sys.exit('Start a server with `sagehen up`, then: eval "$(sagehen env)"')


def train_house_model(city: str) -> "xgboost.Booster":
    """A model of synthetic house prices, another for each city."""
    import xgboost  # here, as not every example needs it

    generator = np.random.default_rng(CITIES.index(city))
    houses = generator.normal([1995, 3000, 4, 2.2, 1.0, 1.5], [10, 750, 1, 0.8, 0.25, 1], (500, 6))
    prices = houses @ generator.uniform([0, 120, 5e3, 1e4, 1e4, 1e4], [0, 200, 2e4, 2e4, 4e4, 2e4])
    return xgboost.train({"max_depth": 4}, xgboost.DMatrix(houses, prices), 30)


def write_house_model(city: str, folder: Path) -> Path:
    """Train, and write `<city>.tar.gz`: one file named xgboost-model, as SageMaker's training."""
    model_file = folder / "xgboost-model"
    model_file.write_bytes(train_house_model(city).save_raw(raw_format="ubj"))
    return write_archive(folder / f"{city}.tar.gz", {"xgboost-model": model_file})


def write_archive(path: Path, files: dict[str, Path]) -> Path:
    """A model.tar.gz of `files`, which are given by their names in it."""
    with tarfile.open(path, "w:gz") as archive:
        for name, file in files.items():
            archive.add(file, name)
    return path


if __name__ == "__main__":
    for each in CITIES:
        print(write_house_model(each, Path(sys.argv[1])))
