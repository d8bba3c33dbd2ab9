"""The import name `mooncake`: what is there, what an import costs, and who else owns it."""

import importlib.util
import subprocess
import sys

import pytest

import mooncake


def test_the_modules_can_be_found():
    for name in ("store", "engine", "mooncake_config", "async_store", "buffer_pool", "mooncake_store_service",
                 "http_metadata_server", "cli", "cli_client"):  # fmt: skip
        assert importlib.util.find_spec(f"mooncake.{name}") is not None, name


def test_names_of_the_package_itself():
    from mooncake import BufferPool, RegisteredBufferPool

    assert BufferPool is RegisteredBufferPool
    with pytest.raises(AttributeError):
        mooncake.nothing  # noqa: B018


def test_enums_stand_at_module_level_too():
    import mooncake.store as store

    assert store.FAILED == store.TaskStatus.FAILED and int(store.FAILED) == 2
    assert store.PROCESSING == store.TaskStatus.PROCESSING
    assert store.COMPLETE == store.ReplicaStatus.COMPLETE
    assert not hasattr(store, "PRESERVE")


@pytest.mark.parametrize("module", ["mooncake.store", "mooncake.engine", "snowskin"])
def test_an_import_needs_no_array_library_and_no_event_loop(module):
    code = (
        f"import sys, {module}; "
        "print([m for m in ('numpy', 'torch', 'aiohttp', 'asyncio', 'http') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"


def test_a_rival_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "mooncake_transfer_engine_non_cuda-0.3.13.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "mooncake-transfer-engine-non-cuda" in mooncake._rivals()
    with pytest.warns(RuntimeWarning, match="mooncake-transfer-engine-non-cuda"):
        mooncake._warn_of_rivals()
