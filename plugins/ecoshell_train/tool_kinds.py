"""Kinds of training tasks that a single tool serves."""

import json
from collections.abc import Callable

from ecoshell_train.world import Made, World, matched, nothing, only, step, whole


def _looked(world: World, kind: str) -> Made:
    """Return a file, a part of it or a folder."""
    chance, lines = world.chance, dict[str, int]()
    if kind == "value":
        file, _, value = world.settings()
        return only("read_file", path=file), lambda _: {"result": value}
    if kind == "list":
        folder = world.about["dir"] = world.word("dirs")
        for _ in range(chance.randint(1, 5)):
            world.files[
                f"{folder}/{world.name(chance.choice(('txt', 'md', 'jpg', 'csv', 'pdf')))}"
            ] = world.text(1, 2)
        return only("list_files", path=folder), whole
    if kind == "here":
        world.file(world.text(1, 2))
        world.file(world.text(1, 2))
        return only("list_files"), whole
    ending, text = (
        world.any_file() if kind == "read" and chance.random() < 0.6 else ("", world.text(1, 5))
    )
    if kind == "line":
        text = world.text(5, 12)
        number = chance.randint(1, len(text.splitlines()))
        world.about["n"] = str(number)
        lines = {"start_line": number, "end_line": number}
    return only("read_file", path=world.file(text, ending), **lines), whole


def _counted(world: World, kind: str) -> Made:
    """Count the lines, words or bytes of a file, or occurrences of a word."""
    if kind == "occurs":
        word = world.about["word"] = world.word("nouns")
        lines = [world.sentence() + world.chance.choice(("\n", f" {word}\n")) for _ in range(6)]
        call, pattern = (
            only("count_text", path=world.file("".join(lines)), text=word),
            r"occurs (\d+)",
        )
    else:
        call, pattern = (
            only("count_text", path=world.file(world.text(1, 30))),
            rf"(\d+) {kind[:-1]}",
        )
    return call, lambda results: {"result": matched(pattern, results[-1])}


def _search(world: World, _: str) -> Made:
    word = world.about["word"] = world.word("nouns")
    folder = world.chance.choice(("", "", f"{world.word('dirs')}/"))
    world.files[f"{folder}{world.name()}"] = (
        f"{world.text(0, 2)}{world.word('people')} has the {word}.\n"
    )
    for _other in range(world.chance.randint(1, 3)):
        world.files[f"{folder}{world.name()}"] = world.text(1, 2).replace(word, "stone")
    return only("search_text", text=word), whole


def _time(world: World, kind: str) -> Made:
    if kind == "now":
        return only("current_time"), lambda results: {"result": results[-1].partition(",")[0]}
    city = world.about["city"] = world.word("cities")
    return only("current_time", timezone=city), lambda results: {
        "result": matched(r"(\d+:\d+)", results[-1])
    }


def _write(world: World, _: str) -> Made:
    new, text = world.name(), world.word("texts")
    world.about |= {"new": new, "text": world.chance.choice((f'"{text}"', f"'{text}'", text))}
    return only("write_file", path=new, content=text), nothing


def _moved(world: World, kind: str) -> Made:
    """Rename, copy, delete or move a file, or create a folder, by a command."""
    about, commands = (
        world.about,
        {"rename": "mv {file} {new}", "copy": "cp {file} {new}", "delete": "rm {file}"},
    )
    commands |= {"mkdir": "mkdir {dir}", "move": "mkdir -p {dir} && mv {file} {dir}/"}
    if kind in ("mkdir", "move"):
        about["dir"] = world.word("dirs")
    if kind != "mkdir":
        world.file(world.text(1, 2))
    if kind in ("rename", "copy"):
        about["new"] = world.name()
    if kind == "move" and world.chance.random() < 0.5:  # The folder exists.
        world.files[f"{about['dir']}/{world.name()}"] = world.text(1, 1)
        commands["move"] = "mv {file} {dir}/"
    return only("run_command", command=commands[kind].format(**about)), nothing


def _ran(world: World, kind: str) -> Made:
    """Return the output of a command or a program."""
    chance = world.chance
    if kind == "checksum":
        call = only("run_command", command=f"sha256sum {world.file(world.text())}")
        return call, lambda results: {"result": results[-1].split()[0]}
    if kind == "largest":
        for size in chance.sample(range(1, 12), k=3):
            world.file(world.text(size, size))
        return only("run_command", command="ls -S | head -1"), whole
    output = f"{world.word('nouns')} {chance.randint(10, 999)}"
    if chance.random() < 0.7:
        script, command = f"{world.folder}{world.name('py')}", "python3"
        a, b = chance.randint(2, 99), chance.randint(2, 99)
        programs = (
            f'print("{output}")\n',
            f"print({a} * {b})\n",
            f"x = {a}\nprint('sum', x + {b})\n",
        )
        world.files[script] = chance.choice(programs)
    else:
        script, command = f"{world.folder}{world.name('sh')}", "sh"
        world.files[script] = f"#!/bin/sh\necho {output}\n"
    world.about["script"] = script
    return only("run_command", command=f"{command} {script}"), whole


_SUMS = {
    "percent": "{n}% * {m}",
    "times": "{n} * {m}",
    "plus": "{n} + {m}",
    "minus": "{n} - {m}",
    "divide": "{n} / {m}",
    "part": "{n} / {m}",
    "bill": "{n} * {m} + {k}",
    "share": "({m} + {k}) / {n}",
    "root": "sqrt({n})",
}


def _calculated(world: World, kind: str) -> Made:
    chance, operand = world.chance, dict[str, str]()
    if kind == "percent":
        operand["n"] = str(chance.randint(1, 99))
    elif kind == "divide":
        parts = chance.randint(2, 60)
        operand |= {"n": str(parts * chance.randint(2, 90)), "m": str(parts)}
    elif kind == "part":
        operand |= zip(
            ("part", "part_de", "part_fr", "part_es", "m"), world.word("parts"), strict=True
        )
    elif kind == "bill":
        operand["word"] = world.word("nouns")
    elif kind == "share":
        operand["n"] = str(chance.randint(2, 12))
    world.about |= {"n": world.number(), "m": world.number(), "k": world.number(), **operand}
    return only("calculate", expression=_SUMS[kind].format(**world.about)), whole


def _convert(world: World, _: str) -> Made:
    unit, to = world.word("units")
    world.about |= {"n": world.number(), "unit": unit, "to": to}
    return only("convert_units", value=world.about["n"], from_unit=unit, to_unit=to), whole


def _table(world: World, kind: str) -> Made:
    """Evaluate a column of a table, or count rows with a value."""
    chance = world.chance
    column, key = world.word("columns"), chance.choice(("name", "day", "who", "place"))
    rows = [
        (world.word("people"), str(chance.randint(1, 400))) for _ in range(chance.randint(4, 9))
    ]
    file = world.file(f"{key},{column}\n" + "".join(f"{a},{b}\n" for a, b in rows), "csv")
    world.about |= {"column": key if kind == "rows" else column, "value": rows[0][0]}
    expression = {
        "column_sum": f"sum(float(r['{column}']) for r in rows)",
        "column_mean": f"round(sum(float(r['{column}']) for r in rows) / len(rows), 2)",
        "column_max": f"max(float(r['{column}']) for r in rows)",
        "rows": f"sum(r['{key}'] == '{rows[0][0]}' for r in rows)",
    }[kind]
    return only(
        "run_python",
        code=f"import csv\nrows = list(csv.DictReader(open('{file}')))\nprint({expression})",
    ), whole


def _field(world: World, _: str) -> Made:
    people = world.chance.sample(world.words("people"), k=3)
    key = world.about["key"] = world.chance.choice(("email", "city", "phone"))
    values = {
        person: f"{person.lower()}@example.org" if key == "email" else str(world.word("cities"))
        for person in people
    }
    file = world.file(
        json.dumps([{"name": person, key: values[person]} for person in people], indent=1), "json"
    )
    name = world.about["name"] = people[world.chance.randrange(3)]
    return only("read_file", path=file), lambda _: {"result": values[name]}


def _git(world: World, kind: str) -> Made:
    author, _, file = world.repository()[-1]
    commands = {
        "git_last": "log -1 --format=%an",
        "git_message": "log -1 --format=%s",
        "git_count": "rev-list --count HEAD",
    }
    if kind == "git_commit":
        text = world.word("texts")
        world.about |= {"file": file, "text": f'"{text}"'}
        world.setup.append(("sh", "-c", f"echo more >> {file}"))
        commands[kind] = f'add {file} && git commit -m "{text}"'
    calls = [step("I ask git.", "run_command", command=f"git {commands[kind]}")]
    if kind == "git_last":
        return calls, lambda _: {"result": author}
    return calls, nothing if kind == "git_commit" else whole


def _unserved(world: World, _: str) -> Made:
    world.about |= {
        "thing": world.word("things"),
        "name": world.word("people"),
        "city": world.word("cities"),
    }
    world.file(world.text(1, 2))
    return [], nothing


def _missing(world: World, _: str) -> Made:
    """Read a file that is in another folder than the request says."""
    folder, other = world.chance.sample(world.words("dirs"), k=2)
    name, text = world.name(), world.text(1, 2)
    world.about |= {"file": name, "dir": folder, "found": f"{other}/{name}"}
    world.files |= {f"{other}/{name}": text, f"{folder}/{world.name()}": world.text(1, 1)}
    return [
        step(f"I read {folder}/{name}.", "read_file", path=f"{folder}/{name}"),
        step("", "list_files"),
        step(f"I read {other}/{name}.", "read_file", path=f"{other}/{name}"),
    ], whole


KINDS: tuple[tuple[Callable[[World, str], Made], str, str], ...] = (
    (_looked, "", "read line list here"),
    (_looked, "value", "value"),
    (_counted, "", "lines words bytes occurs"),
    (_search, "", "search"),
    (_time, "", "time now"),
    (_write, "", "write"),
    (_moved, "", "rename copy delete mkdir move"),
    (_ran, "", "run checksum largest"),
    (_calculated, "calculate", " ".join(_SUMS)),
    (_convert, "", "convert"),
    (_table, "code", "column_sum column_mean column_max rows"),
    (_field, "value", "field"),
    (_git, "", "git_last git_message git_count git_commit"),
    (_unserved, "", "unserved"),
    (_missing, "", "missing"),
)
"""Makers of a task's calls, each with the kind whose answer and reason it shares, and its kinds."""
