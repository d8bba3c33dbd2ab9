"""Every name, signature and enum value of the fixture is there, under the same spelling."""

import importlib
import inspect
import json
import pathlib
import sys

import pytest

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
sys.path.insert(0, str(FIXTURES))
import introspect  # noqa: E402

from surface import signature_differences  # noqa: E402

API = json.loads((FIXTURES / "api.json").read_text())
RATINGS = json.loads((FIXTURES / "ratings.json").read_text())

@pytest.fixture(scope="module")
def ours():
    class Modules(dict):
        """Read when first asked for, so that one module that cannot be imported fails its own rows only."""

        def __missing__(self, name):
            self[name] = introspect.module_facts(name)
            return self[name]

    return Modules()


def entries(kind):
    return [(module, name) for module, facts in API["modules"].items() for name in facts[kind]]


def methods():
    return [
        (module, cls, method)
        for module, facts in API["modules"].items()
        for cls, entry in facts["classes"].items()
        for method in entry["methods"]
    ]


@pytest.mark.parametrize("module,name", entries("enums"))
def test_enum_has_the_same_members_and_values(ours, module, name):
    assert ours[module]["enums"].get(name) == API["modules"][module]["enums"][name]


@pytest.mark.parametrize("module,name", entries("values"))
def test_value_is_exported(ours, module, name):
    wanted = API["modules"][module]["values"][name]
    assert ours[module]["values"].get(name) == wanted


@pytest.mark.parametrize("module,name", entries("aliases"))
def test_alias_is_the_same_object(ours, module, name):
    assert ours[module]["aliases"].get(name) == API["modules"][module]["aliases"][name]


@pytest.mark.parametrize("module,name", entries("classes"))
def test_class_exists_and_is_made_the_same_way(ours, module, name):
    wanted = API["modules"][module]["classes"][name]
    cls = getattr(importlib.import_module(module), name)
    assert inspect.isclass(cls)
    for form in wanted.get("constructor", []):
        if not form["parameters"]:
            cls()


@pytest.mark.parametrize("module,name", entries("classes"))
def test_class_has_the_same_attributes(ours, module, name):
    wanted = API["modules"][module]["classes"][name]["properties"]
    cls = getattr(importlib.import_module(module), name)
    example = cls() if API["modules"][module]["classes"][name].get("constructor", [{}])[0] == {
        "parameters": [], "returns": "None"
    } else cls
    missing = [p for p in wanted if not hasattr(example, p) and not hasattr(cls, p)]
    assert not missing


@pytest.mark.parametrize("module,cls,method", methods())
def test_method_has_the_same_signature(ours, module, cls, method):
    wanted = API["modules"][module]["classes"][cls]["methods"][method]
    found = ours[module]["classes"][cls]["methods"].get(method)
    assert found is not None, f"{cls}.{method} ({wanted['rating']}) is missing"
    if wanted["rating"] != "internal":
        assert signature_differences(f"{cls}.{method}", wanted["forms"], found["forms"]) == []


@pytest.mark.parametrize("module,name", entries("functions"))
def test_function_has_the_same_signature(ours, module, name):
    wanted = API["modules"][module]["functions"][name]
    found = ours[module]["functions"].get(name)
    assert found is not None, f"{module}.{name} ({wanted['rating']}) is missing"
    if wanted["rating"] != "internal":
        assert signature_differences(name, wanted["forms"], found["forms"]) == []


def test_every_name_of_the_fixture_has_a_rating():
    for module, facts in API["modules"].items():
        assert set(facts["classes"]) <= set(RATINGS[module]["classes"])
        assert set(facts["functions"]) <= set(RATINGS[module]["functions"])
        for cls, entry in facts["classes"].items():
            listed = RATINGS[module]["classes"][cls].get("methods")
            assert listed is None or set(entry["methods"]) == set(listed)


def test_setup_can_be_probed_for_its_keywords():
    # vllm-ascend asks the signature first and the docstring when that raises.
    from mooncake.store import MooncakeDistributedStore

    try:
        told = set(inspect.signature(MooncakeDistributedStore.setup).parameters)
    except (ValueError, TypeError):
        told = set()
    assert "enable_ssd_offload" in told or "enable_ssd_offload" in MooncakeDistributedStore.setup.__doc__


def test_engine_is_found_without_importing_it():
    import importlib.util

    assert importlib.util.find_spec("mooncake.engine") is not None
