"""What a caller by one package's interface would stumble over in another's.

    python surface.py api.json found.json      prints the differences of two files of fixtures/introspect.py
"""

import json
import pathlib
import sys

# Python's grammar has no name for a parameter without a default after one with a default.
NOT_EXPRESSIBLE = {("load_tensor_from_safetensor", "file_name")}


def signature_differences(name, wanted_forms, found_forms):
    """Sentences about one function; the closest of the forms found counts."""
    if found_forms is None:
        return [f"{name}: tells no signature"] if wanted_forms else []
    if not wanted_forms:
        return []
    wanted, overloaded = wanted_forms[0]["parameters"], len(wanted_forms) > 1
    return min((compare(name, wanted, form["parameters"], overloaded) for form in found_forms), key=len)


def compare(name, wanted, found, overloaded):
    wrong = []
    extra = found[len(wanted) :]
    if any("default" not in p and not p["kind"].startswith("var") for p in extra):
        wrong.append(f"{name}: needs {[p['name'] for p in extra]} beyond {[p['name'] for p in wanted]}")
    if len(found) < len(wanted):
        wrong.append(f"{name}: lacks {[p['name'] for p in wanted[len(found) :]]}")
    for w, f in zip(wanted, found):
        wrong += parameter_differences(name, w, f, overloaded)
    return wrong


def parameter_differences(name, wanted, found, overloaded):
    where = f"{name}({wanted['name']})"
    if wanted["kind"] == "positional_only":
        # A name where the other has none is harmless.
        return [] if found["kind"] in ("positional", "positional_only") else [f"{where}: is {found['kind']}"]
    if wanted["kind"].startswith("var"):
        return [] if found["kind"] == wanted["kind"] else [f"{where}: is {found['kind']}, not {wanted['kind']}"]
    wrong = []
    if (wanted["name"], wanted["kind"]) != (found["name"], found["kind"]):
        wrong.append(f"{where}: is {found['name']} ({found['kind']})")
    if (name.rsplit(".")[-1], wanted["name"]) in NOT_EXPRESSIBLE:
        return wrong
    if "default" in wanted:
        # None stands for a configuration with its defaults.
        allowed = [wanted["default"]] + ([None] if wanted["default"] == "ReplicateConfig()" else [])
        has = found.get("default", "missing")
        if not any(has == a and type(has) is type(a) for a in allowed):
            wrong.append(f"{where}: default is {has!r}, not {wanted['default']!r}")
    elif "default" in found and not overloaded:
        wrong.append(f"{where}: has the default {found['default']!r}")
    return wrong


def differences(wanted, found):
    """All sentences about two interfaces, as `introspect.interface()` gives them."""
    wrong = []
    for module, facts in wanted["modules"].items():
        there = found["modules"].get(module)
        if there is None:
            wrong.append(f"{module}: is missing")
            continue
        for kind in ("enums", "values", "aliases"):
            for name, value in facts[kind].items():
                if there[kind].get(name) != value:
                    wrong.append(f"{module}.{name}: is {there[kind].get(name)!r}, not {value!r}")
        for name, entry in facts["functions"].items():
            if name not in there["functions"]:
                wrong.append(f"{module}.{name}: is missing")
            elif entry.get("rating") != "internal":
                wrong += signature_differences(name, entry["forms"], there["functions"][name]["forms"])
        for cls, entry in facts["classes"].items():
            if cls not in there["classes"]:
                wrong.append(f"{module}.{cls}: is missing")
                continue
            for method, method_entry in entry["methods"].items():
                other = there["classes"][cls]["methods"].get(method)
                if other is None:
                    wrong.append(f"{cls}.{method}: is missing")
                elif method_entry.get("rating") != "internal":
                    wrong += signature_differences(f"{cls}.{method}", method_entry["forms"], other["forms"])
    return wrong


def main():
    wanted, found = (json.loads(pathlib.Path(name).read_text()) for name in sys.argv[1:3])
    source = found["source"]
    wrong = differences(wanted, found)
    for sentence in wrong:
        print("  " + sentence)
    print(f"{source['package']} {source['version']}: {len(wrong)} differences from {sys.argv[1]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
