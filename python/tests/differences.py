"""Collects from the tests where we differ from the released package, for docs/compatibility.md.

    python differences.py            prints the generated section
    python differences.py --write    puts it into the page
    python differences.py --check    exits 1 when the page is not current
"""

import ast
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
BEGIN = "<!-- differences: begin; written by python/tests/differences.py -->"
END = "<!-- differences: end -->"


def marker(decorator):
    """(name, call) when the expression is pytest.mark.NAME(...)."""
    if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute):
        return decorator.func.attr, decorator
    return None, None


def sentence(name):
    words = name.removeprefix("test_").replace("_", " ").strip()
    words = words.lstrip("0123456789 ")
    return words[:1].upper() + words[1:]


def collect():
    """(rows of `differs`, rows of `ours_only`), in order of file and line."""
    differs, ours_only = [], []
    for path in sorted(HERE.glob("test_*.py")):
        tree = ast.parse(path.read_text())
        whole = None
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "pytestmark":
                name, call = marker(node.value)
                if name == "ours_only":
                    whole = ast.literal_eval(call.args[0])
        if whole:
            doc = ast.get_docstring(tree).splitlines()[0].rstrip(".")
            ours_only.append((doc + " (all of the file)", whole, path.name))
            continue
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for decorator in node.decorator_list:
                name, call = marker(decorator)
                if name == "differs":
                    keywords = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
                    reason = ast.literal_eval(call.args[0])
                    differs.append((sentence(node.name), keywords["peer"], keywords["ours"], reason, path.name))
                elif name == "ours_only":
                    ours_only.append((sentence(node.name), ast.literal_eval(call.args[0]), path.name))
    return differs, ours_only


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def section():
    differs, ours_only = collect()
    lines = [BEGIN, "", "| case | released package | here | reason | test file |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in differs]
    lines += ["", "Checked here only, because the released package cannot be asked:", ""]
    lines += ["| case | why not there | test file |", "|---|---|---|"]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in ours_only]
    return "\n".join(lines + ["", END])


def replaced(page):
    start, end = page.index(BEGIN), page.index(END) + len(END)
    return page[:start] + section() + page[end:]


def main():
    wish = sys.argv[1] if len(sys.argv) > 1 else ""
    if wish == "--write":
        PAGE.write_text(replaced(PAGE.read_text()))
    elif wish == "--check":
        page = PAGE.read_text()
        if replaced(page) != page:
            print("docs/compatibility.md is not current: run python python/tests/differences.py --write")
            return 1
    else:
        print(section())
    return 0


if __name__ == "__main__":
    sys.exit(main())
