"""What the wheels that are given to others hold; run by `cargo xtask wheel`."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

FOLDER = os.environ.get("WHEELS_UNDER_TEST")
pytestmark = [
    pytest.mark.ours_only("the wheels are ours"),
    pytest.mark.skipif(not FOLDER, reason="WHEELS_UNDER_TEST names no folder: `cargo xtask wheel` builds and checks them"),
]
MEGABYTE = 1_000_000
# Every Linux distribution that is still maintained has this one.
NEWEST_LIBRARY = (2, 28)


def wheels(prefix):
    return sorted(pathlib.Path(FOLDER or ".").glob(f"{prefix}-*.whl"))


@pytest.fixture(params=wheels("snowskin"), ids=lambda wheel: wheel.name)
def wheel(request):
    return request.param


def test_there_is_a_wheel_of_each_package():
    assert len(wheels("snowskin_mooncake")) == 1
    names = [wheel.name for wheel in wheels("snowskin")]
    assert any("-cp311-abi3-manylinux" in name for name in names), names


def test_a_wheel_is_small(wheel):
    assert wheel.stat().st_size < 15 * MEGABYTE


def test_the_program_is_inside_and_may_be_executed(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as packed:
        entry = packed.getinfo("snowskin/bin/snowskin")
        assert (entry.external_attr >> 16) & 0o111
        program = pathlib.Path(packed.extract(entry, tmp_path))
    program.chmod(0o755)
    told = subprocess.run([program, "--version", "--json"], capture_output=True, text=True, timeout=20, check=True)
    assert '"version"' in told.stdout


def test_no_symbol_of_a_newer_c_library_is_used(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as packed:
        names = [n for n in packed.namelist() if n.endswith(".so") or n == "snowskin/bin/snowskin"]
        assert len(names) == 2, names
        packed.extractall(tmp_path)
    for name in names:
        told = subprocess.run(
            ["readelf", "--version-info", "--wide", str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", told.stdout)}
        assert versions, f"{name} names no version of the C library"
        assert max(versions) <= NEWEST_LIBRARY, f"{name} needs GLIBC {max(versions)}"


def test_it_is_installed_and_serves_without_anything_else(tmp_path):
    """A fresh environment with our wheels only."""
    matching = [w for w in wheels("snowskin") if "abi3" in w.name]
    assert matching
    environment = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    python = environment / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", *matching, *wheels("snowskin_mooncake")],
        check=True,
        timeout=120,
    )
    script = (
        "import time; t = time.perf_counter()\n"
        "import mooncake.store; print(time.perf_counter() - t)\n"
        "from mooncake.store import MooncakeDistributedStore\n"
        "import snowskin\n"
        "with snowskin.Store(segment_size='64 MiB') as store:\n"
        "    store.put('k', b'value'); assert store.get('k') == b'value'\n"
    )
    best = min(
        float(subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout)
        for _ in range(3)
    )
    print(f"\nimport mooncake.store: {best * 1e3:.0f} ms (goal: below 150 ms)")
    for command in ("snowskin", "mooncake_master"):
        told = subprocess.run(
            [environment / "bin" / command, "--help"], capture_output=True, text=True, timeout=20, check=False
        )
        assert told.returncode == 0, told.stderr
