"""Builds empty CUDA libraries so that a CUDA build of torch loads on a machine without CUDA.

    python stand_ins.py TORCH_LIB OUT

The default torch wheel links against a dozen CUDA libraries. A process that works on the CPU never calls them, but the
loader wants files of the right names, with the right version nodes, and some torch libraries bind every symbol when they
are loaded. For every library that torch's own libraries ask for, this compiles one small shared object whose functions
trap. The CUDA run time and CUPTI are left out: they are small, and the real ones come from the package registry.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# What counts as a CUDA library, and which of them are installed for real.
CUDA = re.compile(r"^lib(cu|nccl|nv)")
REAL = ("libcudart.", "libcupti.")
# Functions of the libraries that have no version nodes, by the way they are named.
UNVERSIONED = re.compile(r"^(p?nccl[A-Z]|cu[A-Z]|cu(sparseLt|File|rand|fft|blas|solver)|nv(shmem|ml|rtc|JitLink))")


def readelf(*arguments: str) -> list[str]:
    done = subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def survey(folder: pathlib.Path):
    """What the libraries in `folder` ask for: sonames, version nodes by soname, functions by version node."""
    sonames: set[str] = set()
    nodes: dict[str, set[str]] = collections.defaultdict(set)
    functions: dict[str, set[str]] = collections.defaultdict(set)
    for library in sorted(folder.glob("*.so*")):
        for line in readelf("-d", str(library)):
            found = re.search(r"\(NEEDED\).*\[([^\]]+)\]", line)
            if found and CUDA.match(found[1]):
                sonames.add(found[1])
        owner = None
        for line in readelf("-V", str(library)):
            if found := re.search(r"\bFile: (\S+)", line):
                owner = found[1]
            elif (found := re.search(r"\bName: (\S+)\s+Flags", line)) and owner:
                nodes[owner].add(found[1])
        for line in readelf("--dyn-syms", str(library)):
            if found := re.search(r"\bUND\s+([A-Za-z_]\w*)(?:@+(\S+))?", line):
                functions[found[2] or ""].add(found[1])
    return sonames, nodes, functions


def build(out: pathlib.Path, soname: str, by_node: dict[str, set[str]]) -> None:
    """Compiles one stand-in; the node "" holds functions without a version."""
    code = ["int snowskin_stand_in;"]
    script = []
    seen: set[str] = set()
    for node, names in sorted(by_node.items()):
        code += [f"void {name}(void) {{ __builtin_trap(); }}" for name in sorted(names - seen)]
        seen |= names
        if node:
            script.append(f"{node} {{ global: {' '.join(name + ';' for name in sorted(names))} }};")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "stand_in.c")
        source.write_text("\n".join(code) + "\n")
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", str(out / soname)]
        if script:
            versions = pathlib.Path(folder, "versions.map")
            versions.write_text("\n".join(script) + "\n")
            command.append(f"-Wl,--version-script={versions}")
        subprocess.run([*command, str(source)], check=True)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: stand_ins.py TORCH_LIB OUT")
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    sonames, nodes, functions = survey(folder)
    if not sonames:
        sys.exit(f"no library in {folder} asks for a CUDA library: is this torch's lib folder?")
    loose = {name for name in functions.get("", ()) if UNVERSIONED.match(name)}
    for soname in sorted(sonames):
        if soname.startswith(REAL):
            continue
        versioned = {node: functions.get(node, set()) for node in nodes.get(soname, ())}
        build(out, soname, versioned or {"": loose})
        print(f"{soname}: {sum(len(names) for names in versioned.values()) or 'no versions'}")


main()
