"""Unpacks part of a wheel: `unpack.py FOLDER PREFIX OUT only|without SUFFIX`.

Takes the one wheel in FOLDER whose name starts with PREFIX. vLLM's compiled parts are left out (they need CUDA and are 700
MB), and of vllm-ascend only the Python files are wanted (its wheel is for another Python version).
"""

import pathlib
import sys
import zipfile


def main() -> None:
    folder, prefix, out, rule, suffix = sys.argv[1:]
    wheels = [path for path in pathlib.Path(folder).glob("*.whl") if path.name.startswith(prefix)]
    if len(wheels) != 1:
        sys.exit(f"expected one wheel {prefix}* in {folder}, found {len(wheels)}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wanted = [name for name in wheel.namelist() if name.endswith(suffix) == (rule == "only")]
        wheel.extractall(out, members=wanted)
    print(f"{wheels[0].name}: {len(wanted)} files")


main()
