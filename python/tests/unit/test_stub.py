"""The stub of the native module says what the module has."""

import ast
import inspect
import pathlib

import pytest

import snowskin
import snowskin._native as native

STUB = ast.parse((pathlib.Path(snowskin.__file__).parent / "_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
# Protocol methods that the type has without their being in its dictionary.
SLOTS = {"__buffer__", "__new__", "__init__", "__len__", "__int__", "__index__"}


def members(node):
    """Names in the body of a class, with the arguments of methods and None for the rest."""
    found = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in item.decorator_list)
            found[item.name] = None if is_property else item.args
        elif isinstance(item, ast.AnnAssign):
            found[item.target.id] = None
    return found


def inherited(node):
    bases = [CLASSES[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in CLASSES]
    found = {}
    for base in bases:
        found.update(members(base))
    return {**found, **members(node)}


def test_every_class_and_function_is_in_the_stub():
    named = set(CLASSES) | {n.name for n in STUB.body if isinstance(n, ast.FunctionDef)}
    there = {
        name
        for name, value in vars(native).items()
        if not name.startswith("__") and (inspect.isclass(value) or inspect.isroutine(value))
    }
    assert there == named - {"_Enum"}


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"_Enum"}))
def test_members_are_the_same(name):
    kind = getattr(native, name)
    stub = inherited(CLASSES[name])
    there = {member for member in dir(kind) if not member.startswith("__")}
    if name == "NativeError":
        # Its attributes are set on the instance.
        there = {member for member in there if member not in dir(Exception)} | set(stub)
    assert there == {member for member in stub if member not in SLOTS and member != "__members__"}


@pytest.mark.parametrize(
    ("name", "method"),
    [(c, m) for c, node in CLASSES.items() for m, args in members(node).items() if args and m not in SLOTS],
)
def test_arguments_are_the_same(name, method):
    if name == "_Enum":
        pytest.skip("stands for several classes")
    args = members(CLASSES[name])[method]
    stub = [a.arg for a in [*args.posonlyargs, *args.args]]
    stub += [args.vararg.arg] if args.vararg else []
    stub += [a.arg for a in args.kwonlyargs]
    found = inspect.signature(getattr(native, name).__dict__[method]).parameters
    assert stub == list(found)
    optional = [name for name, parameter in found.items() if parameter.default is not parameter.empty]
    assert len(args.defaults) + sum(d is not None for d in args.kw_defaults) == len(optional)
