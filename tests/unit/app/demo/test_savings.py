import pytest

from sagehen.app.demo.figures import monthly_usd


def test_a_thousand_endpoints_cost_what_the_article_says():
    assert monthly_usd(1000) == pytest.approx(171_360)
