import pytest

from support.frameworks import Late

figures = Late("sagehen.app.demo.figures")


def test_a_thousand_endpoints_cost_what_the_article_says():
    assert figures.monthly_usd(1000) == pytest.approx(171_360)
