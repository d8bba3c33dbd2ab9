"""The transfer engine, under the names that engines import."""

from snowskin.mooncake.engine import *  # noqa: F403
from snowskin.mooncake.engine import __all__ as __all__
