"""Standard Webhooks: the specification's own example, and secrets that are none."""

import pytest

from sagehen.base.errors import Invalid
from sagehen.services.messaging.webhooks import new_secret, read_secret, webhook_headers


def test_the_example_of_the_reference_libraries() -> None:
    headers = webhook_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330.9,
        b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_secrets() -> None:
    assert len(read_secret(new_secret())) == 32
    assert new_secret() != new_secret()
    for wrong in ("", "whsec_", "whsec_%%%", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"):
        with pytest.raises(Invalid):
            read_secret(wrong)
