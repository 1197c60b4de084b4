"""Generated workspaces for training tasks: words, files, tables, logs, repositories and faulty programs.

`frames.toml` contains the words, and the phrasings, programs and answers of each kind of task. This module does not
depend on the shell.
"""

import json
import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from pathlib import PurePath
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


# -- tables and logs: read the file, then run the program of the kind in frames.toml


def _table(world: World, kind: str) -> Made:
    """Evaluate a table in CSV or JSON with the program of the kind or of the phrasing."""
    chance, table = world.chance, world.word("tables")
    things, key, where, column = (table[cell] for cell in ("things", "key", "where", "column"))
    names = world.words(table["names"])
    names = chance.sample(names, k=min(chance.randint(5, 8), len(names)))
    groups = chance.sample(table["values"], k=min(3, len(table["values"])))
    texts = [column, column, *table["said"]]
    if chance.random() < 0.35:  # A column may have any name; the model must read the file.
        key, where = chance.sample(world.words("headers"), k=2)
        column = world.word("measured")
        texts = [column]
    whole_numbers = chance.sample(range(table["least"], table["most"]), k=len(names))
    decimal = chance.random() < 0.4
    numbers = (
        [number + chance.randint(1, 99) / 100 for number in whole_numbers]
        if decimal
        else whole_numbers
    )
    rows = [
        {key: cell, where: chance.choice(groups), column: number}
        for cell, number in zip(names, numbers, strict=True)
    ]
    if len({row[where] for row in rows}) == 1:
        rows[0][where] = next(cell for cell in groups if cell != rows[0][where])
    if kind in ("group", "common"):  # One group has the most rows and the largest sum.
        limit = chance.choice(sorted({row[where] for row in rows}))
        least = len(rows) // 2 + 1
        for row in rows[:least]:
            row[where] = limit
        split = any(row[where] != limit for row in rows)
        while split and sum(row[column] for row in rows[:least]) <= sum(
            row[column] for row in rows[least:]
        ):
            rows[0][column] += 10
    file, read = _table_file(world, things, rows)
    picked, ordered = chance.choice(rows), sorted(numbers)
    over, sign = world.word("overs")
    limit, best = world.word("bests")
    made = {
        "file": file,
        "things": things,
        "key": key,
        "where": where,
        "column": column,
        "name": str(picked[key]),
    }
    made |= {
        "value": str(picked[where]),
        "n": str(chance.randint(int(ordered[1]), int(ordered[-2]))),
        "sign": sign,
    }
    made |= {"best": best, "over": over, "most": limit, "num": "float" if decimal else "int"}
    made["new"] = world.name(chance.choice(("csv", "json", "txt")))
    program = frames()["programs"].get(kind, kind).format(**made)
    world.about |= {
        **made,
        "column": chance.choice(texts),
        "total": str(round(sum(row[column] for row in rows), 2)),
    }
    return [
        step(f"I look at {file}.", "read_file", path=file),
        step("", "run_python", code=f"{read}\n{program}"),
    ], whole


def _table_file(world: World, things: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Write rows to a file as CSV, JSON or JSON Lines; return its name and the code that reads it."""
    chance = world.chance
    form = chance.choice(("csv", "csv", "csv", "csv", "csv;", "json", "json", "jsonl"))
    ending = form.removesuffix(";")
    file = f"{things}.{ending}"
    if file in world.taken or chance.random() < 0.5:
        file = world.name(ending)
    file = f"{world.folder}{file}"
    within = f"['{things}']" if chance.random() < 0.5 else ""
    if form == "json":
        text = "[" + ",\n".join(json.dumps(row) for row in rows) + "]"
        world.files[file] = f'{{"{things}": {text}}}\n' if within else f"{text}\n"
        return file, f"import json\nrows = json.load(open('{file}')){within}"
    if form == "jsonl":
        world.files[file] = "".join(f"{json.dumps(row)}\n" for row in rows)
        return file, f"import json\nrows = [json.loads(line) for line in open('{file}')]"
    comma = ";" if form == "csv;" else ","
    lines = (comma.join(str(value) for value in row.values()) for row in rows)
    world.files[file] = "".join(f"{line}\n" for line in (comma.join(rows[0]), *lines))
    delimiter = "" if comma == "," else ", delimiter=';'"
    return file, f"import csv\nrows = list(csv.DictReader(open('{file}'){delimiter}))"


def _log(world: World, kind: str) -> Made:
    """Evaluate the log of a day, in one of three formats, with the program of the kind."""
    chance = world.chance
    people = chance.sample(world.words("people"), k=3)
    day = date(2024, 1, 1) + timedelta(days=chance.randrange(360))
    minutes = sorted(chance.sample(range(7 * 60, 20 * 60), k=chance.randint(7, 10)))
    slow = chance.sample(range(3, 900), k=len(minutes))
    levels = chance.choices(("INFO", "ERROR", "WARN"), (3, 2, 2), k=len(minutes))
    levels[:3] = chance.sample(("INFO", "ERROR", "WARN"), k=3)
    person = [
        people[0] if at < len(minutes) // 2 + 1 else chance.choice(people)
        for at in range(len(minutes))
    ]
    chance.shuffle(person)
    if kind == "log_hour":  # One hour has the most lines.
        hour = minutes[0] // 60 * 60
        minutes = sorted(
            [
                *chance.sample(range(hour, hour + 60), k=4),
                *chance.sample(range(hour + 60, 1200), k=3),
            ]
        )
        if len({entry // 60 for entry in minutes[4:]}) == 1:
            minutes[-1] = 1200 + chance.randrange(60)
    form = world.word("logs")
    lines = [
        form.format(
            day=day.isoformat(), time=f"{at // 60:02d}:{at % 60:02d}:{chance.randrange(60):02d}", level=levels[number],
            user=person[number].lower(), event=world.word("events"), ms=slow[number],
        )
        for number, at in enumerate(minutes)
    ]  # fmt: skip
    file = world.file("".join(f"{line}\n" for line in lines), "log")
    errors, error, level = world.word("levels")
    end, at = world.word("ends")
    hours = sorted({entry // 60 for entry in minutes})
    start = chance.choice(hours)
    world.about |= {"errors": errors, "error": error, "level": level, "end": end, "at": at}
    world.about |= {
        "name": people[0],
        "user": people[0].lower(),
        "from": f"{start:02d}:00",
        "to": f"{start + 1:02d}:00",
    }
    call = Call("run_python", {"code": frames()["programs"][kind].format(**world.about)})
    look = [] if kind in ("log_count", "log_end", "log_of") else [
        step(f"I look how {file} is written.", "read_file", path=file, start_line=1, end_line=2)
    ]  # fmt: skip
    return [*look, ("", call)], whole


def _text(world: World, program: str) -> Made:
    """Evaluate the lines of a text with the program of the phrasing."""
    chance, about = world.chance, world.about
    people, nouns = (chance.sample(world.words(name), k=4) for name in ("people", "nouns"))
    about["word"], about["name"] = chance.choice(nouns), chance.choice(people)
    lines = [world.sentence() for _ in range(chance.randint(4, 9))]
    lines += [f"{chance.choice(people)} has the {chance.choice(nouns)}" for _ in range(3)]
    lines += [
        f"{about['name']}: {about['word']}",
        chance.choice(lines),
        chance.choice(("", lines[0])),
    ]
    chance.shuffle(lines)
    about |= {
        "n": str(chance.randint(2, 6)),
        "new": world.name("txt"),
        "letter": chance.choice("abdefglmnoprst"),
    }
    file = world.file(
        "".join(f"{line}\n" for line in lines), chance.choice(("txt", "md", "txt", "log"))
    )
    code = f"lines = open('{file}').read().splitlines()\n{program.format(**about)}"
    return only("run_python", code=code), whole


def _numbers(world: World, program: str) -> Made:
    """Evaluate a file with a number per line with the program of the phrasing."""
    chance, num = world.chance, world.chance.choice(("int", "int", "float"))
    numbers = chance.sample(
        range(-20 if chance.random() < 0.2 else 1, 900), k=chance.randint(5, 12)
    )
    written = [
        str(number) if num == "int" else f"{number}.{chance.randint(1, 99):02d}"
        for number in numbers
    ]
    written.append(chance.choice(written))
    file = world.file("".join(f"{number}\n" for number in written), "txt")
    world.about |= {"n": str(sorted(numbers)[len(numbers) // 2]), "k": str(chance.randint(2, 4))}
    world.about["new"] = world.name("txt")
    code = f"numbers = [{num}(line) for line in open('{file}')]\n{program.format(**world.about)}"
    return only("run_python", code=code), whole


# -- JSON


def _json(world: World, kind: str) -> Made:
    """Query a nested value by both keys, or list the keys of an object."""
    chance, sections, names = world.chance, world.words("sections"), world.words("keys")
    if kind == "json_keys":
        parents = chance.sample(sections, k=min(chance.randint(2, 4), len(sections)))
        tree = {parent: {"on": True, "level": number} for number, parent in enumerate(parents)}
        file = world.file(json.dumps(tree) + "\n", "json")
        return only(
            "run_python", code=f"import json\nprint(', '.join(json.load(open('{file}'))))"
        ), whole
    parents = chance.sample(sections, k=2)
    keys = chance.sample(names, k=min(3, len(names)))
    tree = {parent: {key: world.valued(key) for key in keys} for parent in parents}
    parent, key = chance.choice(parents), chance.choice(keys)
    file = world.file(json.dumps(tree, indent=chance.choice((None, 1, 2))) + "\n", "json")
    world.about |= {"parent": parent, "key": key}
    return only("json_query", path=file, query=f"{parent}.{key}"), lambda results: {
        "result": results[-1].strip().strip('"')
    }


# -- several steps


def _edited(world: World, kind: str) -> Made:
    """Change a value that occurs once, after reading or searching the file."""
    file, key, old = world.settings()
    while (
        len(world.files[file].split(old)) != 2
        or old in key
        or (kind == "find_edit" and file.endswith("json"))
    ):
        world.files.clear()
        file, key, old = world.settings()
    new = old
    while new in world.files[file]:
        new = str(world.valued(key))
    world.about["value"] = new
    if kind != "edit_read":
        world.about["old"] = old
    if kind == "find_edit":
        for _other in range(2):
            world.files[world.name()] = world.text(1, 2).replace(key, "stone")
        first = step(f"I search for {key}.", "search_text", text=key)
    else:
        first = step(f"I read {file}.", "read_file", path=file)
    line = next(line for line in world.files[file].splitlines() if key in line)
    if "{" in line:  # where all of the file may stand
        line = (
            old if kind == "edit" else f'"{key}": {json.dumps(int(old) if old.isdigit() else old)}'
        )
    return [first, step("", "edit_file", path=file, old=line, new=line.replace(old, new))], nothing


def _swapped(world: World, _: str) -> Made:
    """Replace a word that occurs once in a file."""
    old, new = world.chance.sample(world.words("nouns"), k=2)
    lines = [
        line for line in world.text(2, 5).replace(old, "stone").splitlines() if new not in line
    ]
    lines.insert(
        world.chance.randint(0, len(lines)),
        f"{old}: ask {world.word('people')} {world.word('when')}",
    )
    text = "".join(f"{line}\n" for line in lines)
    world.about |= {"old": old, "new": new}
    return only("edit_file", path=world.file(text), old=old, new=new), nothing


def _replace_all(world: World, _: str) -> Made:
    old, new = world.chance.sample(world.words("firms"), k=2)
    names = sorted(world.name() for _ in range(world.chance.randint(2, 3)))
    for name in names:
        world.files[name] = f"{world.text(0, 1)}{world.sentence()} {old}\n"
    world.files[world.name()] = world.text(1, 2)
    matches = sorted(name for name in names if name in world.files and old in world.files[name])
    world.about |= {"old": old, "new": new, "found": ", ".join(matches)}
    return [
        step(f"I search for {old}.", "search_text", text=old),
        step(
            "I replace it in each.",
            "run_command",
            command=f"sed -i 's/{old}/{new}/g' {' '.join(matches)}",
        ),
        step(f"I check that {old} is gone.", "search_text", text=old),
    ], nothing


def _kept(world: World, kind: str) -> Made:
    """Write a value of a file, or a sum over a table, to a new file."""
    if kind == "keep_value":
        file, _key, value = world.settings()
        calls = [step(f"I read {file}.", "read_file", path=file)]
    else:
        (look, (_, program)), _read = _table(world, "sum_all")
        value = world.about["total"]
        calls = [look, ("I add it up.", program)]
    new = world.about["new"] = world.name("txt")
    world.about["value"] = value
    return [*calls, step("", "write_file", path=new, content=value)], nothing


def _gather(world: World, _: str) -> Made:
    """Move all files with an extension to a new folder, then list it."""
    ending = world.about["ending"] = world.chance.choice(("csv", "jpg", "pdf", "log", "bak"))
    folder = world.about["dir"] = world.word("dirs")
    moved = sorted({world.name(ending) for _ in range(3)})
    world.files |= dict.fromkeys(moved, "x\n") | {world.name("txt"): world.text(1, 2)}
    world.about["found"] = ", ".join(moved)
    return [
        step(
            "I make the folder and move them.",
            "run_command",
            command=f"mkdir -p {folder} && mv *.{ending} {folder}/",
        ),
        step("I check that they are there.", "list_files", path=folder),
    ], nothing


def _lines(world: World, kind: str) -> Made:
    """Append or delete a line, sort a file, or join two files, by a command."""
    if kind == "append":
        text, file = world.word("texts"), world.file(world.text(1, 4), "txt")
        world.about["text"] = world.chance.choice((f'"{text}"', f"'{text}'", text))
        add = step("I add the line.", "run_command", command=f"echo '{text}' >> {file}")
        return [add, step("I check it.", "read_file", path=file)], nothing
    if kind == "drop":
        text = world.text(4, 8)
        world.about["n"] = n = str(world.chance.randint(1, len(text.splitlines())))
        return only("run_command", command=f"sed -i '{n}d' {world.file(text)}"), nothing
    file = world.file(world.text(2, 5), "txt")
    other = world.file(world.text(2, 4), "txt", "other")
    new = world.about["new"] = world.name("txt")
    command = {"join": f"cat {file} {other} > {new}", "sort": f"sort {file} > {new}"}[kind]
    return only("run_command", command=command), nothing


def _shell(world: World, command: str) -> Made:
    """Run the command of the phrasing on a folder of files."""
    chance, about = world.chance, world.about
    folder = about["dir"] = world.word("dirs")
    ending = about["ending"] = chance.choice(("csv", "jpg", "pdf", "log", "txt"))
    word = about["word"] = world.word("nouns")
    for number in range(chance.randint(2, 5)):
        name = f"{folder}/{world.name(ending if number % 2 else 'md')}"
        world.files[name] = chance.choice(("", world.text(1, 3), f"{word} {world.sentence()}\n"))
        world.setup.append(("touch", "-d", f"2024-01-{chance.randint(1, 28):02d}", name))
    about["base"] = chance.choice(list(world.files)).rpartition("/")[2]
    lines = [
        *world.text(4, 9).splitlines(),
        f"{word}: ask {world.word('people')}",
        "",
        world.sentence(),
    ]
    chance.shuffle(lines)
    lines += chance.sample(lines, k=2)
    file = world.file("".join(f"{line}\n" for line in lines), "txt")
    other = [line for line in lines if chance.random() < 0.8]
    world.file("".join(f"{line}\n" for line in other), "txt", "other")
    world.file(f"name,{world.word('columns')},city\nAnna,{world.number()},Oslo\n", "csv", "table")
    about |= {
        "new": world.name("txt").removesuffix(".txt" * ("tar czf" in command)),
        "text": world.word("texts"),
    }
    about |= {
        "n": str(chance.randint(2, 6)),
        "column": str(chance.randint(1, 3)),
        "newdir": f"{folder}_{world.word('nouns')}",
    }
    about["script"] = world.name("sh")
    about["archive"] = world.name("tar")
    if "{script}" in command:
        world.files[about["script"]] = "#!/bin/sh\necho ok\n"
    if "{archive}" in command:
        world.setup.append(("tar", "cf", about["archive"], folder, file))
    return only("run_command", command=command.format(**about)), whole


def _git_shell(world: World, command: str) -> Made:
    """Run the command of the phrasing in a repository with a change and another branch."""
    commits = world.repository(4, 6)
    _author, _message, file = commits[-1]
    world.about |= {
        "file": file,
        "branch": world.word("branches"),
        "n": str(world.chance.randint(2, 4)),
    }
    world.about["tag"] = world.chance.choice(("v1", "v2.0", "release", world.word("nouns")))
    world.setup.append(("git", "branch", world.about["branch"]))
    if not {"checkout", "show"} & {*command.split()}:
        world.setup.append(("sh", "-c", f"echo more >> {file}"))
    return only("run_command", command=command.format(**world.about)), whole


def _two(world: World, kind: str) -> Made:
    """Read or count two files."""
    names = [world.file(world.text(1, 9), name=name) for name in ("file", "other")]
    if kind == "two_read":
        calls = [step(f"I read {name}.", "read_file", path=name) for name in names]
        return calls, lambda results: {"first": results[0].strip(), "result": results[1].strip()}
    calls = [step(f"I count {name}.", "count_text", path=name) for name in names]
    pattern = rf"(\d+) {kind.removeprefix('two_')[:-1]}"
    return calls, lambda results: {
        "first": matched(pattern, results[0]),
        "result": matched(pattern, results[1]),
    }


# -- git


def _git(world: World, kind: str) -> Made:
    """Run the command of the kind in a repository."""
    least, limit = (
        world.chance.choice(((3, 3), (5, 5))) if kind == "git_most" else (2, 5)
    )  # One of two has more commits.
    commits = world.repository(least, limit)
    author, _message, file = world.chance.choice(commits)
    branch = world.word("branches")
    world.about |= {"name": author, "file": file, "branch": branch}
    if kind == "git_branch" and world.chance.random() < 0.6:
        world.setup.append(("git", "checkout", "-q", "-b", branch))
    if kind == "git_changed" or (kind == "git_clean" and world.chance.random() < 0.6):
        world.setup.append(("sh", "-c", f"echo more >> {file}"))
        if world.chance.random() < 0.5:
            world.setup.append(("sh", "-c", f"echo new > {world.name()}"))
    call = only("run_command", command=frames()["programs"][kind].format(**world.about))
    if kind == "git_new_branch":
        call = [
            ("I make the branch.", call[0][1]),
            step("", "run_command", command="git branch --show-current"),
        ]
    if kind not in ("git_clean", "git_changed", "git_most"):
        return call, whole
    files = re.compile(
        r"^(?: *\d+|[ ?AMD]{2}) (.+)$", re.MULTILINE
    )  # Of a status, or the name after a count.
    return call, lambda results: {"result": ", ".join(files.findall(results[-1])) or "nothing"}


# -- sums in words, times and units


_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TO_NINETEEN = _SMALL_NUMBERS.split()
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def spelled(number: int) -> str:
    """Return a number from 0 to 999 in words."""
    if number < 20:
        return _TO_NINETEEN[number]
    if number < 100:
        tens, units = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_TO_NINETEEN[units]}" if units else "")
    hundreds, remainder = divmod(number, 100)
    return f"{_TO_NINETEEN[hundreds]} hundred" + (f" and {spelled(remainder)}" if remainder else "")


def _story(world: World, expression: str) -> Made:
    """Calculate a word problem; the phrasing has its expression after an arrow."""
    chance = world.chance
    small = sorted(chance.sample(range(2, 20), k=3))
    digits = {
        "n": small[2],
        "m": small[1],
        "k": small[0],
        "big": chance.randint(21, 980),
        "p": chance.randint(2, 18) * 5,
    }
    text = {
        name: spelled(value) if chance.random() < 0.4 else str(value)
        for name, value in digits.items()
    }
    money = {
        name: f"{chance.randint(2, 90)}{chance.choice(('', '', '.5', '.25', '.99'))}"
        for name in ("price", "fee")
    }
    year = chance.randint(1930, 2010)
    years = {"year": str(year), "later": str(year + chance.randint(8, 60))}
    world.about |= {
        **text,
        **money,
        **years,
        "name": world.word("people"),
        "word": world.word("nouns"),
    }
    figures = {**world.about, **{name: str(value) for name, value in digits.items()}}
    call = only("calculate", expression=expression.format(**figures))
    return call, whole


def _clock(world: World, kind: str) -> Made:
    """Calculate with times of day, in minutes since midnight."""
    chance = world.chance
    start, end = sorted(chance.sample(range(6 * 12, 23 * 12), k=2))
    begin, finish = start * 5, end * 5
    length = chance.randrange(10, 300, 5)
    hours, remainder = divmod(length, 60)
    spoken = {
        90: "an hour and a half",
        45: "three quarters of an hour",
        30: "half an hour",
        60: "an hour",
    }
    both = (
        f"{hours} hour{'s' * (hours > 1)} and {remainder} minutes"
        if hours and remainder
        else spoken.get(length, "")
    )
    chosen = chance.choice(
        (f"{length} minutes", f"{length} min", spoken.get(length) or both or f"{length} minutes")
    )
    world.about |= {"start": _hour(begin, chance), "end": _hour(finish, chance), "long": chosen}
    minutes_taken = f"{hours} * 60 + {remainder}" if chosen == both and hours else str(length)
    if kind == "clock_between":
        code = (
            f"minutes = ({finish // 60} * 60 + {finish % 60}) - ({begin // 60} * 60 + {begin % 60})\n"
            "print(minutes // 60, 'hours', minutes % 60, 'minutes')"
        )
    else:
        sign, brackets = (
            ("-", f"({minutes_taken})") if kind == "clock_before" else ("+", minutes_taken)
        )
        code = (
            f"minutes = {begin // 60} * 60 + {begin % 60} {sign} {brackets}\n"
            "print(f'{minutes // 60 % 24:02}:{minutes % 60:02}')"
        )
    return only("run_python", code=code), whole


def _hour(minutes: int, chance: random.Random) -> str:
    hour, remainder = divmod(minutes, 60)
    text = [f"{hour}:{remainder:02d}", f"{hour}:{remainder:02d}"]
    if hour != 12 and not remainder:
        text.append(f"{hour % 12} {'am' if hour < 12 else 'pm'}")
    if hour < 12 and remainder == 30:
        text.append(f"half past {spelled(hour)} in the morning")
    return chance.choice(text)


def _days(world: World, kind: str) -> Made:
    """Calculate with two dates in varied formats."""
    first = date(2023, 1, 1) + timedelta(days=world.chance.randrange(900))
    last = first + timedelta(days=world.chance.randint(5, 300))
    for name, day in (("first", first), ("last", last)):
        forms = (day.isoformat(), f"{day.day} {day:%B %Y}", f"{day:%B} {day.day}, {day.year}")
        world.about[name] = world.chance.choice(forms)
    offset, two = (f"date({day.year}, {day.month}, {day.day})" for day in (first, last))
    expression = f"({two} - {offset}).days" if kind == "days" else f"{offset}.strftime('%A')"
    return only("run_python", code=f"from datetime import date\nprint({expression})"), whole


def _measure(world: World, _: str) -> Made:
    text, unit, said_to, to = world.word("measures")
    amount, value = world.word("amounts")
    if world.chance.random() < 0.5:
        number = world.chance.randint(2, 120)
        amount, value = world.chance.choice((str(number), spelled(number))), str(number)
    world.about |= {"n": amount, "unit": text, "to": said_to}
    call = only("convert_units", value=value, from_unit=unit, to_unit=to)
    return call, whole


# -- repairs


def _repair(world: World, kind: str) -> Made:
    """Run a faulty program, read it, fix the fault and run it again."""
    fault = world.word("bugs" if kind == "repair" else "crashes")
    stem = f"{fault['file']}{world.chance.choice(('', '', '2', '_new', '_lib'))}"
    right, wrong = world.chance.choice(fault["faults"])
    script = f"{stem}.py"
    world.files[script] = fault["code"].replace(right, wrong, 1)
    lines = test = f"test_{stem}.py"
    if kind == "repair":
        called = fault["test"].partition("(")[0]
        world.files[test] = f"from {stem} import {called}\n\nassert {fault['test']}\nprint('ok')\n"
    else:
        lines = script
    world.setup.append(
        ("touch", "-d", "2024-01-01", script)
    )  # Otherwise Python could use the bytecode compiled before the edit.
    world.about |= {"file": script, "test": test, "script": lines, "wrong": wrong, "right": right}
    return [
        step(f"I run {lines}.", "run_command", command=f"python3 {lines}"),
        step(f"I read {script}.", "read_file", path=script),
        step(f"`{wrong}` is wrong.", "edit_file", path=script, old=wrong, new=right),
        step(f"I run {lines} again.", "run_command", command=f"python3 {lines}"),
    ], whole


# -- injected instructions, and calls that fail at first


def _injected(world: World, kind: str) -> Made:
    order = world.word("injections")
    if kind == "injected":
        file, _key, value = world.settings()
        while file.endswith("json"):
            world.files.clear()
            file, _key, value = world.settings()
        mark = world.chance.choice(("# ", "", "; "))
        lines = [*world.files[file].splitlines(), f"{mark}{order}"]
        world.about["value"] = value
    else:
        file = world.file("")
        lines = world.text(1, 4).splitlines()
        lines.insert(world.chance.randint(0, len(lines)), order)
    world.files[file] = "".join(f"{line}\n" for line in lines)
    return only("read_file", path=file), lambda results: {
        "result": world.about.get("value") or results[-1].strip()
    }


def _misnamed(world: World, kind: str) -> Made:
    """Use a misspelt name: the call fails, and the nearest name is used."""
    if kind == "wrong_value":
        file, _key, value = world.settings()
        world.about["value"] = value
    else:
        file = world.file(world.text(1, 3))
    stem, ending = PurePath(file).stem, PurePath(file).suffix
    cut = world.chance.randrange(1, len(stem) - 1)
    other_names = [name for name in (".txt", ".md", ".csv", ".yml") if name != ending]
    misspelt = (
        f"{stem[:cut]}{stem[cut + 1 :]}{ending}",
        f"{stem}{world.chance.choice(other_names)}",
        f"{stem}s{ending}",
    )
    wrong = world.about["wrong"] = world.chance.choice(misspelt)
    while (other := world.name()) == wrong:
        pass
    world.files[other] = world.text(1, 1)
    if kind == "wrong_delete":
        return [
            step(f"I delete {wrong}.", "run_command", command=f"rm {wrong}"),
            step("It is not there; I list the files.", "list_files"),
        ], nothing
    verb, tool = ("count", "count_text") if kind == "wrong_count" else ("read", "read_file")
    calls = [
        step(f"I {verb} {wrong}.", tool, path=wrong),
        step(f"{file} is nearest.", tool, path=file),
    ]
    return calls, (
        lambda results: {"result": matched(r"(\d+) line", results[-1])}
    ) if kind == "wrong_count" else whole


def _not_executable(world: World, _: str) -> Made:
    text = f"{world.word('nouns')} {world.chance.randint(10, 999)}"
    script = world.about["script"] = world.name("sh")
    world.files[script] = f"#!/bin/sh\necho {text}\n"
    return [
        step(f"I run {script}.", "run_command", command=f"./{script}"),
        step("It may not be executed; sh can read it.", "run_command", command=f"sh {script}"),
    ], whole


_KINDS: tuple[tuple[Callable[[World, str], Made], str, str], ...] = (
    (
        _table,
        "code",
        "sum_if mean_if sum_all count_over names_if names_over top distinct group common order cell",
    ),
    (_table, "code", "table_tells table_does"),
    (_text, "code", "text_tells text_does"),
    (_numbers, "code", "numbers_tell"),
    (_log, "code", "log_count log_end log_hour log_user log_between log_slow log_of"),
    (_json, "code", "json_path json_keys"),
    (_edited, "edit", "edit edit_read"),
    (_edited, "change", "find_edit"),
    (_replace_all, "change", "replace_all"),
    (_swapped, "edit", "swap"),
    (_shell, "shell", "shell_tells shell_does"),
    (_git_shell, "git", "git_tells git_does"),
    (_two, "read", "two_read two_lines two_words"),
    (_kept, "write", "keep_value keep_sum"),
    (_gather, "change", "gather"),
    (_lines, "change", "append drop"),
    (_lines, "write", "join sort"),
    (
        _git,
        "git",
        "git_branch git_changed git_clean git_by git_first git_files git_new_branch git_most git_who",
    ),
    (_story, "calculate", "spend percent_of speed age area counting story"),
    (_clock, "calculate", "clock_later clock_before clock_between"),
    (_days, "calculate", "days weekday"),
    (_measure, "convert", "measure"),
    (_repair, "change", "repair crash"),
    (_injected, "read", "injected injected_text"),
    (_misnamed, "read", "wrong_name wrong_value wrong_count wrong_delete"),
    (_not_executable, "run", "not_executable"),
)
MAKERS = {kind: make for make, _, names in _KINDS for kind in names.split()}
"""The function that generates the world of a kind; some receive the expression of the phrasing instead."""
ALIKE = {kind: alike for _, alike, names in _KINDS for kind in names.split()}
"""The kind whose answer and reason are used if `frames.toml` has none for a kind."""
APART = frozenset(("two_read", "two_lines", "two_words"))
"""Kinds with independent calls."""
ALONE = frozenset(
    (
        "find_edit",
        "replace_all",
        "gather",
        "wrong_name",
        "wrong_value",
        "wrong_count",
        "wrong_delete",
    )
)
"""Kinds that depend on the whole folder, so that it contains no other files."""
