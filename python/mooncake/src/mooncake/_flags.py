"""Flags as the released commands take them: `--name=value`, `--name value`, `-name`, `--noname`.

Owns: the forms of words, files of flags, and variables; the tables of flags are those of the commands. `-` and `_` are
the same in names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

TRUE_WORDS = frozenset(("1", "t", "true", "y", "yes"))
FALSE_WORDS = frozenset(("0", "f", "false", "n", "no"))

# Flags of the flag library itself.
_LIBRARY = ("flagfile", "fromenv", "tryfromenv", "undefok", "help", "version")
FILE_DEPTH_MAX = 4


class UsageError(Exception):
    """The words cannot be understood; the message names the word and what is known."""


class Flag(NamedTuple):
    """One flag: its kind (`bool`, `int`, `float` or `str`), its default, and what is said about it."""

    kind: str
    default: Any
    text: str = ""


class Parsed(NamedTuple):
    """What the words say."""

    values: dict[str, Any]
    """Every flag's value, given or default."""
    given: set[str]
    """The flags that were given."""
    wants_help: bool
    wants_version: bool


def parse(words: Sequence[str], flags: Mapping[str, Flag], environment: Mapping[str, str] | None = None) -> Parsed:
    """Reads a command's words; of a flag that comes twice the later one counts.

    Raises:
        UsageError: An unknown flag (with the nearest known one), a value that is not of the flag's kind, a word that
            belongs to no flag, or a file of flags that cannot be read.
    """
    reader = _Reader(flags, os.environ if environment is None else environment)
    reader.read(list(words), 0)
    reader.refuse_unknown()
    values = {name: flag.default for name, flag in flags.items()}
    values.update(reader.values)
    return Parsed(values, set(reader.values), reader.wants_help, reader.wants_version)


def value_of(name: str, flag: Flag, text: str) -> Any:
    """A flag's value of its text.

    Raises:
        UsageError: The text is not of the flag's kind.
    """
    if flag.kind == "bool":
        word = text.strip().lower()
        if word in TRUE_WORDS or word in FALSE_WORDS:
            return word in TRUE_WORDS
        raise UsageError(f"--{name} must be true or false, not {text!r}")
    if flag.kind == "str":
        return text
    try:
        return int(text) if flag.kind == "int" else float(text)
    except ValueError:
        kind = "a whole number" if flag.kind == "int" else "a number"
        raise UsageError(f"--{name} must be {kind}, not {text!r}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name with the fewest single-character edits."""
    return min(known, key=lambda other: (_edits(name, other), other))


def _edits(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        before, row[0] = row[0], index
        for at, wanted in enumerate(other, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (letter != wanted))
    return row[-1]


def help_text(command: str, about: str, flags: Mapping[str, Flag]) -> str:
    """The text of `--help`."""
    lines = [about, "", f"Usage: {command} [--flag=value ...]", ""]
    for name, flag in flags.items():
        default = str(flag.default).lower() if flag.kind == "bool" else repr(flag.default)
        lines.append(f"  --{name} ({flag.kind}, default {default})" + (f": {flag.text}" if flag.text else ""))
    return "\n".join(lines)


def leave_with_usage(command: str, error: UsageError) -> NoReturn:
    """Ends the command with exit code 2 and the message on stderr."""
    import sys

    print(f"{command}: {error}", file=sys.stderr)
    raise SystemExit(2)


class _Reader:
    def __init__(self, flags: Mapping[str, Flag], environment: Mapping[str, str]) -> None:
        self.flags = flags
        self.environment = environment
        self.values: dict[str, Any] = {}
        self.unknown: list[str] = []
        self.undefok: set[str] = set()
        self.wants_help = False
        self.wants_version = False

    def read(self, words: list[str], depth: int) -> None:
        while words:
            word = words.pop(0)
            if not word.startswith("-") or word in ("-", "--"):
                raise UsageError(f"unexpected word {word!r}: flags look like --name=value")
            name, separator, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            self._flag(name, value if separator else None, words, depth)

    def _flag(self, name: str, value: str | None, words: list[str], depth: int) -> None:
        if name in self.flags:
            self._known(name, value, words)
        elif name.startswith("no") and self.flags.get(name[2:], Flag("", None)).kind == "bool" and value is None:
            self.values[name[2:]] = False
        elif name in _LIBRARY or name == "h" or name.startswith("help"):
            self._library(name, value, words, depth)
        else:
            self.unknown.append(name)
            # Its value, if it is a word of its own, is no word of ours.
            if value is None and words and not words[0].startswith("-"):
                words.pop(0)

    def _known(self, name: str, value: str | None, words: list[str]) -> None:
        flag = self.flags[name]
        if value is None and flag.kind == "bool":
            is_word = bool(words) and words[0].lower() in (TRUE_WORDS | FALSE_WORDS)
            value = words.pop(0) if is_word else "true"
        self.values[name] = value_of(name, flag, self._value(name, value, words))

    def _value(self, name: str, value: str | None, words: list[str]) -> str:
        if value is not None:
            return value
        if not words:
            raise UsageError(f"--{name} needs a value")
        return words.pop(0)

    def _library(self, name: str, value: str | None, words: list[str], depth: int) -> None:
        if name == "version":
            self.wants_version = True
        elif name not in _LIBRARY or name == "help":
            self.wants_help = True
        elif name == "flagfile":
            for file in self._value(name, value, words).split(","):
                self.read(_words_of(file, depth), depth + 1)
        elif name == "undefok":
            names = self._value(name, value, words).split(",")
            self.undefok.update(part.strip().replace("-", "_") for part in names)
        else:
            for flag in self._value(name, value, words).split(","):
                self._from_environment(flag.strip().replace("-", "_"), is_needed=name == "fromenv")

    def _from_environment(self, name: str, *, is_needed: bool) -> None:
        text = self.environment.get(f"FLAGS_{name}")
        if text is None:
            if is_needed:
                raise UsageError(f"--fromenv names {name}, but FLAGS_{name} is not set")
        elif name in self.flags:
            self.values[name] = value_of(name, self.flags[name], text)
        else:
            self.unknown.append(name)

    def refuse_unknown(self) -> None:
        for name in self.unknown:
            bare = name[2:] if name.startswith("no") else name
            if name not in self.undefok and bare not in self.undefok:
                raise UsageError(f"unknown flag --{name}; the nearest known one is --{nearest(name, self.flags)}")


def _words_of(file: str, depth: int) -> list[str]:
    if depth >= FILE_DEPTH_MAX:
        raise UsageError(f"--flagfile {file}: files of flags name each other {FILE_DEPTH_MAX} deep")
    try:
        with open(file, encoding="utf-8") as handle:
            lines = [line.strip() for line in handle]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--flagfile {file} cannot be read: {error}") from None
    return [line for line in lines if line.startswith("-")]
