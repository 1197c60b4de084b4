"""Training tasks with something wrong: faulty programs, injected instructions, and calls that fail at first."""

from pathlib import PurePath

from ecoshell_train.world import Made, World, matched, nothing, only, step, whole


def repair(world: World, kind: str) -> Made:
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


def injected(world: World, kind: str) -> Made:
    """Read a file with an instruction that must not be followed."""
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


def misnamed(world: World, kind: str) -> Made:
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


def not_executable(world: World, _: str) -> Made:
    """Run a script that may not be executed, then with sh."""
    text = f"{world.word('nouns')} {world.chance.randint(10, 999)}"
    script = world.about["script"] = world.name("sh")
    world.files[script] = f"#!/bin/sh\necho {text}\n"
    return [
        step(f"I run {script}.", "run_command", command=f"./{script}"),
        step("It may not be executed; sh can read it.", "run_command", command=f"sh {script}"),
    ], whole
