"""The store, under the names that engines import."""

from snowskin.mooncake.store import *  # noqa: F403
from snowskin.mooncake.store import __all__ as __all__
