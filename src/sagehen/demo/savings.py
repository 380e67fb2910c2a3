"""The article's arithmetic: what many models cost each on its own endpoint, and all on one."""

__all__ = ["PRICE_SOURCE", "monthly_usd"]

_USD_PER_INSTANCE_HOUR = 0.119
_INSTANCES_PER_ENDPOINT = 2
_HOURS_PER_MONTH = 720

PRICE_SOURCE = (
    "USD: what AWS would charge for hosting these models there. You do not pay it here. "
    f"An endpoint is {_INSTANCES_PER_ENDPOINT} × ml.c5.large × {_HOURS_PER_MONTH} h × "
    f"{_USD_PER_INSTANCE_HOUR} USD."
)


def monthly_usd(endpoints: int) -> float:
    """A month of `endpoints` endpoints of two ml.c5.large: 1000 of them are 171,360 USD."""
    return endpoints * _INSTANCES_PER_ENDPOINT * _HOURS_PER_MONTH * _USD_PER_INSTANCE_HOUR
