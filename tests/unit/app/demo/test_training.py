import io
import tarfile

import numpy as np
import pytest
import xgboost

from sagehen.app.demo.data import FEATURES, draw_houses, draw_market, some_houses
from sagehen.app.demo.training import pack, train


@pytest.fixture(scope="module")
def market():
    return draw_market(np.random.default_rng(1))


@pytest.fixture(scope="module")
def model(market):
    rows, prices = draw_houses(market, 200, np.random.default_rng(1))
    return train("Houston_TX", rows, prices, max_depth=3, rounds=10)


def test_the_same_seed_draws_the_same_houses(market):
    first = draw_houses(market, 5, np.random.default_rng(3))
    again = draw_houses(market, 5, np.random.default_rng(3))
    assert first[0].shape == (5, len(FEATURES))
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])


def test_houses_to_ask_about_read_as_in_the_article(market):
    for year, feet, bedrooms, bathrooms, acres, garage in some_houses(
        market, 50, np.random.default_rng(4)
    ):
        assert all(type(whole) is int for whole in (year, feet, bedrooms, garage))
        assert bathrooms * 2 == round(bathrooms * 2)
        assert acres == round(acres, 2) > 0


def test_archive_holds_the_one_file_that_the_container_loads(model, market):
    with tarfile.open(fileobj=io.BytesIO(pack(model))) as archive:
        assert archive.getnames() == ["xgboost-model"]
        content = archive.extractfile("xgboost-model").read()
    loaded = xgboost.Booster()
    loaded.load_model(bytearray(content))
    rows = some_houses(market, 3, np.random.default_rng(5))
    again = loaded.inplace_predict(np.array(rows, np.float32))
    assert np.array_equal(model.predict(rows), again)


def test_target_is_the_archive_below_the_prefix(model):
    assert model.target == "Houston_TX.tar.gz"
