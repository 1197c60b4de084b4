"""Kinds of training tasks about files, and the table of all kinds with programs, sums and faults."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from ecoshell.messages import Call
from ecoshell_train import faults, sums
from ecoshell_train.world import Made, World, frames, matched, nothing, only, step, whole

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
    (sums.story, "calculate", "spend percent_of speed age area counting story"),
    (sums.clock, "calculate", "clock_later clock_before clock_between"),
    (sums.days, "calculate", "days weekday"),
    (sums.measure, "convert", "measure"),
    (faults.repair, "change", "repair crash"),
    (faults.injected, "read", "injected injected_text"),
    (faults.misnamed, "read", "wrong_name wrong_value wrong_count wrong_delete"),
    (faults.not_executable, "run", "not_executable"),
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
