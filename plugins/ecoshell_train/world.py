"""The generated workspace of a training task: words, files and repositories.

`frames.toml` contains the words, and the phrasings, programs and answers of each kind of task.
"""

import json
import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

from ecoshell.messages import Call

Split = Literal["train", "held"]
T = TypeVar("T")
Read = Callable[[Sequence[str]], Mapping[str, str]]
"""Reads the parts of an answer from the results of calls."""
Made = tuple[Sequence[tuple[str, Call]], Read]
"""Calls with their reasons (empty for the reason of the kind), and the function that reads the answer."""
_WAYS_PER_HELD_WAY = 6
"""Every sixth phrasing of a kind is held out for validation."""
_HELD_WORDS_DIVISOR = 5
"""The last fifth of each word list is held out for validation."""
_MAX_TRIES = 1000
"""Random names that are tried before a number is added."""
_SETTINGS = {"ini": " = ", "yaml": ": ", "txt": ": ", "env": "=", "cfg": "="}
_INVENTED = ("stems", "nouns", "people", "firms", "branches")
"""Word lists with random words, so that models learn to copy from the request."""
_NUMERIC_KEYS = ("port", "timeout", "limit", "width", "speed", "level", "retries", "price")


@cache
def frames() -> dict[str, Any]:
    """Return the grammar."""
    return tomllib.loads((files("ecoshell_train") / "frames.toml").read_text(encoding="utf-8"))


def here(text: Sequence[T], split: Split) -> list[T]:
    """Return the phrasings of a split."""
    return [
        way
        for at, way in enumerate(text)
        if (at % _WAYS_PER_HELD_WAY == _WAYS_PER_HELD_WAY - 1) == (split == "held")
    ]


@dataclass
class World:
    """A generated workspace and the words for its contents.

    `folder` is a prefix, with a slash, for the files of `file`; `taken` are file names that must not be used.
    """

    chance: random.Random
    split: Split
    taken: Mapping[str, str] = field(default_factory=dict[str, str])
    about: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    setup: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    folder: str = ""

    def words(self, name: str) -> list[Any]:
        """Return the words of a list that belong to the split."""
        words: list[Any] = frames()["words"][name]
        choices = len(words) // _HELD_WORDS_DIVISOR
        return words[-choices:] if self.split == "held" else words[:-choices]

    def word(self, name: str) -> Any:
        if name in _INVENTED and self.chance.random() < 0.25:
            word = "".join(
                self.chance.choices(self.words("syllables"), k=self.chance.randint(2, 3))
            )
            return word.capitalize() if name in ("people", "firms") else word
        return self.chance.choice(self.words(name))

    def name(self, ending: str = "") -> str:
        """Return an unused file name."""
        tries = 0
        while True:
            number = str(tries) if tries > _MAX_TRIES else ""
            stem, more = f"{self.word('stems')}{number}", self.word("nouns")
            if ending not in ("py", "sh") and self.chance.random() < 0.4:
                year = self.chance.randint(2015, 2030)
                forms = (
                    f"{stem}-{more}",
                    f"{stem}_{more}",
                    f"{year}-{stem}",
                    f"{stem.upper()}",
                    f"{stem}{more.capitalize()}",
                )
                stem = self.chance.choice(
                    (*forms, f"{stem}{self.chance.randint(1, 99)}", f"{stem}.{year}")
                )
            name = f"{stem}.{ending or self.word('endings')}"
            if name not in self.files and name not in self.taken:
                return name
            tries += 1

    def sentence(self) -> str:
        person, verb, thing, when = map(self.word, ("people", "verbs", "nouns", "when"))
        forms = (
            f"{person} will {verb} the {thing} {when}.",
            f"{verb} {thing} {when}",
            f"{thing}: ask {person} {when}",
        )
        return self.chance.choice(forms)

    def text(self, least: int = 1, max_lines: int = 5) -> str:
        return "".join(f"{self.sentence()}\n" for _ in range(self.chance.randint(least, max_lines)))

    def number(self) -> str:
        integral = self.chance.randint(2, 10 ** self.chance.randint(1, 4))
        return (
            str(integral)
            if self.chance.random() < 0.7
            else f"{integral}.{self.chance.randint(1, 99):02d}".rstrip("0")
        )

    def file(self, text: str, ending: str = "", name: str = "file") -> str:
        self.about[name] = path = f"{self.folder}{self.name(ending)}"
        self.files[path] = text
        return path

    def any_file(self) -> tuple[str, str]:
        """Return a file name extension and matching contents."""
        chance = self.chance
        ending = chance.choice(("txt", "md", "py", "py", "sh", "csv", "json", "ini", "log"))
        if ending == "py":
            fault = self.word(chance.choice(("bugs", "crashes")))
            return ending, chance.choice((fault["code"], f"print({self.sentence()!r})\n"))
        key, value, more = self.word("keys"), self.word("nouns"), self.number()
        return ending, {
            "sh": f"#!/bin/sh\necho {value} {more}\n",
            "csv": f"{key},amount\n"
            + "".join(f"{self.word('people')},{self.number()}\n" for _ in range(4)),
            "json": json.dumps({key: value, "amount": more}, indent=chance.choice((None, 2)))
            + "\n",
            "ini": f"[{self.word('sections')}]\n{key} = {value}\n",
        }.get(ending) or self.text(1, 5)

    def history(self) -> list[tuple[str, ...]]:
        """Return commands that turn a workspace into a repository, as most users work in one."""
        chance, author = self.chance, self.word("people")
        person = ("-c", f"user.name={author}", "-c", f"user.email={author.lower()}@example.org")
        message = f"{self.word('verbs')} the {self.word('nouns')}"
        commands: list[tuple[str, ...]] = [
            ("git", "init", "-q", "-b", chance.choice(("main", "main", "master", "work")))
        ]
        if chance.random() < 0.85:
            add = (
                ("git", "add", ".")
                if chance.random() < 0.6
                else ("sh", "-c", "ls | head -1 | xargs -r -d '\\n' git add")
            )
            commands += [add, ("git", *person, "commit", "-q", "--allow-empty", "-m", message)]
        return commands

    def settings(self) -> tuple[str, str, str]:
        """Create a file of keys and values; returns its name, a key and its value."""
        names = self.chance.sample(self.words("keys"), k=min(4, len(self.words("keys"))))
        values = {key: self.valued(key) for key in names}
        kind = self.chance.choice(("json", *_SETTINGS))
        if kind == "json":
            text = json.dumps(values, indent=self.chance.choice((None, 2))) + "\n"
        else:
            text = "".join(f"{key}{_SETTINGS[kind]}{value}\n" for key, value in values.items())
        file = self.file(text, kind)
        key = self.about["key"] = self.chance.choice(names)
        return file, key, str(values[key])

    def valued(self, key: str) -> str | int:
        if key in _NUMERIC_KEYS:
            return self.chance.randint(2, 9000)
        if key == "email":
            return f"{self.word('people').lower()}@example.org"
        return self.chance.choice((self.word("people"), self.word("nouns"), self.word("cities")))

    def repository(self, least: int = 1, max_commits: int = 3) -> list[tuple[str, str, str]]:
        """Create a repository; returns the author, message and file of each commit."""
        names = [self.name() for _ in range(2)]
        self.setup.append(
            ("git", "init", "-q", "-b", self.chance.choice(("main", "main", "master")))
        )
        commits: list[tuple[str, str, str]] = []
        authors = self.chance.sample(self.words("people"), k=2)
        for number in range(self.chance.randint(least, max_commits)):
            author, file = self.chance.choice(authors), names[number % 2]
            message = f"{self.word('verbs')} the {self.word('nouns')}"
            self.setup.append(("sh", "-c", f"echo '{self.sentence()}' >> {file}; git add ."))
            person = ("-c", f"user.name={author}", "-c", f"user.email={author.lower()}@example.org")
            self.setup.append(("git", *person, "commit", "-q", "-m", message))
            commits.append((author, message, file))
        author = commits[-1][0]
        self.setup.append(("git", "config", "user.name", author))
        self.setup.append(("git", "config", "user.email", f"{author.lower()}@example.org"))
        return commits


def whole(results: Sequence[str]) -> Mapping[str, str]:
    """Use the last result as the answer."""
    return {"result": results[-1].strip()}


def nothing(_: Sequence[str]) -> Mapping[str, str]:
    """Use no result in the answer."""
    return {}


def matched(pattern: str, text: str) -> str:
    """Return the first group of a match, or the whole text without a match."""
    match = re.search(pattern, text)
    return match[1] if match else text


def step(why: str, name: str, **arguments: Any) -> tuple[str, Call]:
    """Return a call and its reason; an empty reason means that of the kind."""
    return why, Call(name, arguments)


def only(name: str, **arguments: Any) -> list[tuple[str, Call]]:
    """Return a single call with the reason of the kind."""
    return [step("", name, **arguments)]
