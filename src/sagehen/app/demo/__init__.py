"""The demo: many small models behind one multi-model endpoint, told with an ordinary AWS client."""

from sagehen.app.demo.story import run

__all__ = ["run"]
