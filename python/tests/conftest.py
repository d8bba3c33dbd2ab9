"""Fixtures of the compatibility tests: a master as a real process, stores joined to it, memory by address.

The same tests run against our package and, with `--peer` or SNOWSKIN_TEST_PEER=1, against an installed peer wheel.
Rows on which the two are known to differ carry `differs(...)`; docs/compatibility.md lists them.
"""

import itertools
import os
import re

import pytest

import sides
from sides import MIB, Master, Memory, Side

# Loopback only, and quiet; read by both sides when the native module starts.
os.environ.setdefault("MC_TCP_BIND_ADDRESS", "127.0.0.1")
os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
os.environ.pop("SNOWSKIN_MASTER", None)
os.environ.pop("MOONCAKE_MASTER", None)
os.environ.pop("MOONCAKE_CONFIG_PATH", None)

SEGMENT = 128 * MIB
LOCAL_BUFFER = 32 * MIB


def pytest_addoption(parser):
    parser.addoption("--peer", action="store_true", help="run against the installed peer wheel instead of ours")


def peer_chosen(config):
    return config.getoption("--peer") or os.environ.get("SNOWSKIN_TEST_PEER") == "1"


def pytest_ignore_collect(collection_path, config):
    """The unit tests are of our own modules."""
    if peer_chosen(config) and collection_path.name == "unit":
        return True
    return None


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "differs(reason, peer=..., ours=...): the two sides are known to differ here; listed in docs/compatibility.md",
    )
    config.addinivalue_line("markers", "ours_only(reason): nothing of the peer to run this against")
    config.addinivalue_line("markers", "peer_only(reason): pins what only the peer does")


def pytest_collection_modifyitems(config, items):
    peer = peer_chosen(config)
    for item in items:
        only = item.get_closest_marker("ours_only" if peer else "peer_only")
        if only:
            item.add_marker(pytest.mark.skip(reason=only.args[0]))


@pytest.fixture(scope="session")
def side(request):
    return Side(peer_chosen(request.config))


@pytest.fixture(scope="session")
def mooncake_store():
    """The module under test."""
    import mooncake.store

    return mooncake.store


class Pool:
    """A master and the stores that a test joined to it; ends all of them."""

    def __init__(self, side, folder, **options):
        self.side = side
        self.master = Master(side, folder, **options)
        self.stores = []

    def setup_arguments(self, segment=SEGMENT, local_buffer=LOCAL_BUFFER, host="127.0.0.1"):
        return (host, "P2PHANDSHAKE", segment, local_buffer, "tcp", "", self.master.address)

    def open(self, segment=SEGMENT, local_buffer=LOCAL_BUFFER, **keywords):
        """A store that has joined with `segment` bytes."""
        from mooncake.store import MooncakeDistributedStore

        store = MooncakeDistributedStore()
        code = store.setup(*self.setup_arguments(segment, local_buffer), **keywords)
        assert code == 0, f"setup against {self.master.address} answered {code}"
        self.stores.append(store)
        return store

    def end(self):
        for store in self.stores:
            store.close()
        self.master.end()


@pytest.fixture(scope="session")
def pool(side, tmp_path_factory):
    shared = Pool(side, tmp_path_factory.mktemp("pool"))
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def store(pool):
    """The store most tests use; a test that changes its state opens its own."""
    return pool.open()


@pytest.fixture(scope="session")
def reader(store, pool):
    """A second store of the same pool that offers no memory: what it reads comes from `store`."""
    return pool.open(segment=0)


@pytest.fixture
def own_pool(side, tmp_path):
    """Makes pools that only this test uses."""
    made = []

    def make(**options):
        made.append(Pool(side, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


counter = itertools.count()


@pytest.fixture
def new_key(request):
    """Keys that no other test uses."""
    prefix = re.sub(r"\W+", "_", request.node.name)

    def make(name="k"):
        return f"{prefix}/{name}/{next(counter)}"

    return make


@pytest.fixture
def key(new_key):
    return new_key()


@pytest.fixture
def memory():
    """Makes memory that no store knows of."""
    made = []

    def make(size, fill=None):
        made.append(Memory(size, fill))
        return made[-1]

    yield make
    for each in made:
        each.free()


@pytest.fixture
def registered(store, memory):
    """Makes memory registered with `store`."""
    made = []

    def make(size, fill=None, of=store):
        region = memory(size, fill)
        assert of.register_buffer(region.address, size) == 0
        made.append((of, region.address))
        return region

    yield make
    for of, address in made:
        of.unregister_buffer(address)


@pytest.fixture
def until():
    return sides.wait_until
