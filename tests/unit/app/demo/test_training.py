import io
import tarfile

import numpy as np
import pytest

from support.frameworks import Late, xgboost

data = Late("sagehen.app.demo.data")
training = Late("sagehen.app.demo.training")


@pytest.fixture(scope="module")
def market():
    return data.draw_market(np.random.default_rng(1))


@pytest.fixture(scope="module")
def model(market):
    rows, prices = data.draw_houses(market, 200, np.random.default_rng(1))
    return training.train("Houston_TX", rows, prices, max_depth=3, rounds=10)


def test_the_same_seed_draws_the_same_houses(market):
    first = data.draw_houses(market, 5, np.random.default_rng(3))
    again = data.draw_houses(market, 5, np.random.default_rng(3))
    assert first[0].shape == (5, len(data.FEATURES))
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])


def test_houses_to_ask_about_read_as_in_the_article(market):
    for year, feet, bedrooms, bathrooms, acres, garage in data.some_houses(
        market, 50, np.random.default_rng(4)
    ):
        assert all(type(whole) is int for whole in (year, feet, bedrooms, garage))
        assert bathrooms * 2 == round(bathrooms * 2)
        assert acres == round(acres, 2) > 0


def test_archive_holds_the_one_file_that_the_container_loads(model, market):
    with tarfile.open(fileobj=io.BytesIO(training.pack(model))) as archive:
        assert archive.getnames() == ["xgboost-model"]
        content = archive.extractfile("xgboost-model").read()
    loaded = xgboost.Booster()
    loaded.load_model(bytearray(content))
    rows = data.some_houses(market, 3, np.random.default_rng(5))
    again = loaded.inplace_predict(np.array(rows, np.float32))
    assert np.array_equal(model.predict(rows), again)


def test_target_is_the_archive_below_the_prefix(model):
    assert model.target == "Houston_TX.tar.gz"
