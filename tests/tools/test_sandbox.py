"""The sandbox of run_command and run_python."""

import asyncio
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from escapes import CONTROLLED, PROGRAMS, SECRET, SYSTEM, SYSTEM_PROGRAMS
from guarded_machine import GuardedMachine

from ecoshell.errors import ToolError
from ecoshell.messages import Observation
from ecoshell.tools import ToolOptions
from ecoshell.tools.background import BackgroundCommands
from ecoshell.tools.builtin.commands import CommandTools, created_mark
from ecoshell.tools.protection import Protection, protection
from ecoshell.tools.sandbox import Sandbox, backend
from ecoshell.tools.workspace import Workspace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the escapes are written for Linux")
BACKENDS = ("bubblewrap", "namespaces")
SCRIPTS = {**CONTROLLED, **SYSTEM}
ALL_PROGRAMS = {**PROGRAMS, **SYSTEM_PROGRAMS}
CASES = [
    *(("run_command", name) for name in SCRIPTS),
    *(("run_python", name) for name in ALL_PROGRAMS),
]
CONTROLS = [
    *(("run_command", name) for name in CONTROLLED),
    *(("run_python", name) for name in PROGRAMS),
]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedMachine]:
    machine = GuardedMachine()
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    yield machine
    machine.close()


@pytest.fixture(params=BACKENDS)
def holder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Choose what holds the sandbox."""
    if request.param == "namespaces":
        monkeypatch.setattr(shutil, "which", lambda name: None)
    elif shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    backend.cache_clear()
    working = backend(Path("/nowhere"))
    if working.name != request.param:
        pytest.skip(working.problem or f"{request.param} does not work here")
    yield request.param
    backend.cache_clear()


def tools(
    machine: GuardedMachine,
    *,
    confined: bool = True,
    folder: Path | None = None,
    readable: tuple[Path, ...] = (),
    background: BackgroundCommands | None = None,
) -> CommandTools:
    workspace = Workspace(folder or machine.workspace)
    workspace.also_readable = readable
    own = machine.home / ".ecoshell-home"
    box = Sandbox("strict", workspace.root, (own,)) if confined else None
    options = ToolOptions(command_seconds=30, sandbox=box, background=background)
    return CommandTools(workspace, options)


async def attempt(
    machine: GuardedMachine, tool: str, name: str, *, confined: bool
) -> tuple[Observation, str]:
    """Make an attempt and return its output, and what it achieved."""
    text = SCRIPTS[name] if tool == "run_command" else ALL_PROGRAMS[name]
    result = await getattr(tools(machine, confined=confined), tool)(text)
    shown = next((mark for mark in (SECRET, "ESCAPED") if mark in result.text), "")
    return result, f"printed {shown}" if shown else machine.harm()


async def test_a_command_runs_though_a_socket_ends_while_it_starts(
    machine: GuardedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    backend.cache_clear()
    if backend(Path("/nowhere")).name != "namespaces":
        pytest.skip("namespaces do not work here")
    gone = Path("/var/tmp/ecoshell-test-of-a-socket-that-ended/socket")
    monkeypatch.setattr(Sandbox, "_sockets", lambda self: iter([gone]))
    result = await tools(machine).run_command("echo started")
    backend.cache_clear()
    assert "started" in result.text, result.text


def test_there_are_enough_escapes() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(("tool", "name"), CASES)
async def test_escape_is_held(machine: GuardedMachine, holder: str, tool: str, name: str) -> None:
    result, harm = await attempt(machine, tool, name, confined=True)
    assert not harm, result.text


@pytest.mark.skipif(os.geteuid() != 0, reason="some attempts need root")
@pytest.mark.parametrize(("tool", "name"), CONTROLS)
async def test_escape_succeeds_without_the_sandbox(
    machine: GuardedMachine, tool: str, name: str
) -> None:
    result, harm = await attempt(machine, tool, name, confined=False)
    for _ in range(200):  # a signal takes effect when its process runs next
        if harm := harm or machine.harm():
            break
        await asyncio.sleep(0.05)
    assert harm, result.text


@pytest.mark.parametrize(
    "daemon",
    [
        "sleep 1000 &",
        "nohup sleep 1000 >/dev/null 2>&1 &",
        "setsid sleep 1000 </dev/null >/dev/null 2>&1 &",
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &)",
        "python3 -c 'import os, time; os.fork() or (os.setsid(), os.fork() or time.sleep(1000))'",
    ],
)
async def test_no_process_outlives_its_command(
    machine: GuardedMachine, holder: str, daemon: str
) -> None:
    pipe = machine.workspace / "life"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    result = await tools(machine).run_command(f"exec 9>life; echo started >&9; {daemon}\ntrue")
    assert result.ok, result.text
    assert os.read(end, 100) == b"started\n"
    assert select.select([end], [], [], 10)[0], "a process still holds the pipe"
    assert os.read(end, 100) == b""
    os.close(end)


async def test_commands_work_as_usual(machine: GuardedMachine, holder: str) -> None:
    commands = tools(machine)
    script = (
        "echo one > new && cat new; mkdir -p a/b && touch a/b/c && mv a d && rm -r d; ls ~/documents; "
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'socket.create_connection(s.getsockname()); print("loopback")\'; '
        "echo two > /tmp/kept; echo three | tee /dev/null; git init -q sub && git -C sub status --short"
    )
    result = await commands.run_command(script)
    assert (result.ok, result.text) == (True, "one\nempty\nf\nloopback\nthree")
    assert (await commands.run_command("cat /tmp/kept; exit 3")).text == "two\n[exit status 3]"
    assert (await commands.run_python("import ssl, json; print(json.dumps(1))")).text == "1"
    assert "[exit status 137]" in (await commands.run_command("kill -9 $$")).text
    assert not (machine.workspace / ".ecoshell").exists()


async def test_a_repository_can_be_committed_to(machine: GuardedMachine, holder: str) -> None:
    shutil.rmtree(machine.workspace / ".git")
    setup = "git init -q; git config user.email a@b; git config user.name a"
    assert (await tools(machine, confined=False).run_command(setup)).ok
    result = await tools(machine).run_command(
        "echo x > new; git add new && git commit -qm new && git log --oneline"
    )
    assert result.ok, result.text


@pytest.fixture
def worktree(machine: GuardedMachine) -> Path:
    """A linked worktree whose repository lies outside the workspace."""
    repository, linked = machine.home / "main", machine.home / "linked"
    script = (
        f"git init -q {repository} && cd {repository} && git config user.email a@b && git config user.name a "
        f"&& git commit -q --allow-empty -m first && git worktree add -q -b topic {linked}"
    )
    subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True)
    return linked


async def test_a_linked_worktree_can_be_committed_to(
    machine: GuardedMachine, holder: str, worktree: Path
) -> None:
    commands = tools(machine, folder=worktree)
    script = "echo x > new; git add new && git commit -qm new && git switch -qc feature/other && git status -sb"
    result = await commands.run_command(script)
    assert (result.ok, result.text) == (True, "## feature/other")
    result = await tools(machine, confined=False).run_command(
        f"git -C {machine.home}/main log --format=%s feature/other"
    )
    assert result.text == "new\nfirst"


_GIT_ESCAPES = {
    "hook": "echo x > $MAIN/.git/hooks/post-commit",
    "settings": "git config core.fsmonitor ./evil",
    "settings of the worktree": "echo x > $(git rev-parse --git-dir)/config.worktree",
    "redirected repository": "echo $PWD/evil > $(git rev-parse --git-dir)/commondir",
    "replaced redirection": "cd $(git rev-parse --git-dir); echo /evil > x; mv -f x commondir",
    "moved folder": "cd $(git rev-parse --git-dir)/..; mv linked old; mkdir linked",
    "redirected worktree": "echo gitdir: $PWD/evil > .git",
    "replaced pointer": "echo gitdir: $PWD/evil > x; mv -f x .git",
    "attributes": "mkdir -p $MAIN/.git/info; echo '* filter=x' > $MAIN/.git/info/attributes",
    "index of the main worktree": "echo x > $MAIN/.git/index.lock",
    "main worktree": "echo x > $MAIN/x",
}


@pytest.mark.parametrize("script", _GIT_ESCAPES.values(), ids=_GIT_ESCAPES)
async def test_a_command_in_a_linked_worktree_changes_nothing_that_git_obeys(
    machine: GuardedMachine, holder: str, worktree: Path, script: str
) -> None:
    main = machine.home / "main"

    def state() -> dict[str, bytes]:
        own = main / ".git/worktrees/linked"
        watched = [path for path in main.rglob("*") if not path.is_relative_to(own)]
        watched += [own / name for name in ("commondir", "gitdir", "config.worktree")]
        return {
            str(path): path.read_bytes() if path.is_file() else b""
            for path in (*watched, worktree / ".git")
            if path.exists()
        }

    before = state()
    await tools(machine, folder=worktree).run_command(f"MAIN={main}; {script}")
    assert state() == before


@pytest.mark.parametrize("pointer", ["the repository", "a forged folder"])
async def test_files_of_the_workspace_do_not_open_another_repository(
    machine: GuardedMachine, holder: str, worktree: Path, pointer: str
) -> None:
    main = machine.home / "main"
    other = machine.home / "cloned"
    forged = other / "worktrees" / "linked"
    forged.mkdir(parents=True)
    (forged / "commondir").write_text(f"{main}/.git\n")
    (forged / "gitdir").write_text(f"{other}/.git\n")
    own = main / ".git/worktrees/linked" if pointer == "the repository" else forged
    (other / ".git").write_text(f"gitdir: {own}\n")
    result = await tools(machine, folder=other).run_command(f"echo x > {main}/.git/refs/heads/x")
    assert not result.ok
    assert not (main / ".git/refs/heads/x").exists()


@pytest.mark.parametrize("linked", [False, True])
async def test_the_scripts_of_a_skill_run_and_nothing_else_of_the_settings_is_read(
    machine: GuardedMachine, holder: str, linked: bool
) -> None:
    own = machine.home / ".ecoshell-home"
    skill = own / "config" / "skills" / "pdf"
    if linked:
        (machine.home / "dotfiles").mkdir()
        skill.parent.parent.mkdir(parents=True)
        skill.parent.symlink_to(machine.home / "dotfiles")
    skill.mkdir(parents=True)
    (skill / "fill.py").write_text("print('filled')")
    (skill.parent / "other").mkdir()
    (own / "config" / "keys.toml").write_text(SECRET)
    place = skill.resolve()
    commands = tools(machine, readable=(place,))
    assert (await commands.run_command(f"python3 {place}/fill.py")).text == "filled"
    python = f"exec(open({str(place / 'fill.py')!r}).read())"
    assert (await commands.run_python(python)).text == "filled"
    for script in (f"echo x > {place}/x", f"echo x > {place}/fill.py", f"rm -r {place}"):
        assert not (await commands.run_command(script)).ok
    shown = await commands.run_command(f"cat {own}/config/keys.toml; grep -r . {own}; ls -R {own}")
    assert SECRET not in shown.text
    assert "keys.toml\n" not in shown.text.replace("No such file or directory", "")
    assert sorted(path.name for path in skill.iterdir()) == ["fill.py"]


@pytest.fixture
def rules(machine: GuardedMachine) -> Iterator[Callable[..., None]]:
    """Protect files of the workspace as rules that deny do."""
    token = protection.set(None)

    def protect(*, read: Sequence[str] = (), write: Sequence[str] = ()) -> None:
        protection.set(Protection.of(machine.workspace, read, write))

    yield protect
    protection.reset(token)


@pytest.mark.parametrize("folder", ["secrets", "a/b/secrets"])
@pytest.mark.parametrize(
    "script",
    [
        "mv {folder} s4",
        "mv {top} s4",
        'python3 -c \'import os; os.rename("{top}", "s4")\'',
        "mkdir other; mv --exchange {top} other; mv -T {top} other",
        "ln {folder}/key.txt k; cp -r {folder} s4; tar cf s4.tar {top}",
    ],
)
async def test_no_command_moves_a_folder_with_a_protected_file(
    machine: GuardedMachine,
    holder: str,
    rules: Callable[..., None],
    folder: str,
    script: str,
) -> None:
    secret = machine.workspace / folder / "key.txt"
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET)
    rules(read=[f"{folder}/*"])
    await tools(machine).run_command(script.format(folder=folder, top=folder.partition("/")[0]))
    shown = await tools(machine).run_command("grep -r SECRET . ; ls -R")
    assert SECRET not in shown.text
    assert secret.read_text() == SECRET
    holding = [path for path in machine.workspace.rglob("*") if path.is_file() and path != secret]
    assert not any(SECRET.encode() in path.read_bytes() for path in holding)


async def test_no_command_moves_a_folder_with_a_file_that_it_does_not_write(
    machine: GuardedMachine, holder: str, rules: Callable[..., None]
) -> None:
    (machine.workspace / ".config/git").mkdir(parents=True)
    (machine.workspace / "docs/deep").mkdir(parents=True)
    (machine.workspace / "docs/deep/old.txt").touch()
    rules(write=["docs/deep/old.txt"])
    for name in ("docs", ".config"):
        await tools(machine).run_command(f"mv {name} moved; mkdir {name}")
        assert not (machine.workspace / "moved").exists()
    assert (await tools(machine).run_command("echo x > docs/deep/new && mv docs/deep/new .")).ok


@pytest.mark.parametrize("pattern", ["docs/*", "docs/**", "Docs/", "docs", "*"])
async def test_no_command_writes_new_files_in_a_folder_that_a_rule_names(
    machine: GuardedMachine, holder: str, rules: Callable[..., None], pattern: str
) -> None:
    docs = machine.workspace / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "old.txt").write_text("old")
    rules(write=[pattern])
    script = "cd docs; for name in new.txt old.txt deep/new.txt; do echo x > $name; done; cd ..; mv docs d"
    await tools(machine).run_command(script)
    assert sorted(path.name for path in docs.rglob("*")) == ["deep", "old.txt"]
    assert (docs / "old.txt").read_text() == "old"
    assert (await tools(machine).run_command("echo x > free")).ok == (pattern != "*")


async def test_no_command_reads_what_a_rule_names_outside_the_workspace(
    machine: GuardedMachine, holder: str, rules: Callable[..., None]
) -> None:
    (machine.outside / "f").write_text(SECRET)
    rules(read=[f"{machine.outside}/*"])
    assert SECRET not in (await tools(machine).run_command("cat $OUT/f; cat ~/d*/f")).text


async def test_no_command_moves_a_secret_of_a_home_folder_that_is_the_workspace(
    machine: GuardedMachine, holder: str
) -> None:
    commands = tools(machine, folder=machine.home)
    await commands.run_command("mv .config s4; mv .local s5")
    shown = await commands.run_command("cat s4/gh/hosts.yml s5/share/keyrings/login")
    assert SECRET not in shown.text
    assert not (machine.home / "s4").exists()


async def test_a_result_names_new_files_that_other_programs_execute(
    machine: GuardedMachine, holder: str
) -> None:
    run = tools(machine).run_command
    result = await run("mkdir .husky && echo true > .husky/pre-commit && echo {} > .mcp.json")
    assert result.text.splitlines()[-1] == created_mark([".husky", ".mcp.json"])
    assert "[created" not in (await run("echo false >> .husky/pre-commit; echo more")).text


async def test_a_result_names_hooks_in_a_new_repository(
    machine: GuardedMachine, holder: str
) -> None:
    folder = machine.workspace / "plain"
    folder.mkdir()
    run = tools(machine, folder=folder).run_command
    assert "[created" not in (await run("echo .git/hooks")).text
    result = await run("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit")
    assert result.text.splitlines()[-1] == created_mark([".git/hooks"])


def wait_for(path: Path) -> None:
    """Wait until the path exists."""
    deadline = time.monotonic() + 600
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("printing", ["", "printf begun; "])
async def test_a_stopped_command_names_new_files_that_other_programs_execute(
    machine: GuardedMachine, holder: str, printing: str
) -> None:
    command = tools(machine).run_command(f"{printing}mkdir .husky; sleep 1000")
    running = asyncio.create_task(command)
    await asyncio.to_thread(wait_for, machine.workspace / ".husky")
    running.cancel()
    head = "begun" if printing else "[no output.]"
    assert (await running).text == f"{head}\n{created_mark(['.husky'])}"


@pytest.mark.parametrize("ending", ["", "; sleep 1000"])
async def test_a_background_command_names_new_files_that_other_programs_execute(
    machine: GuardedMachine, holder: str, ending: str
) -> None:
    commands = tools(machine, background=BackgroundCommands())
    await commands.run_command(f"printf begun; mkdir .husky{ending}", background=True)
    await asyncio.to_thread(wait_for, machine.workspace / ".husky")
    result = await (commands.command_stop("b1") if ending else commands.command_output("b1", 60))
    state = "stopped" if ending else "exit status 0"
    assert result.text == f"begun\n{created_mark(['.husky'])}\n[b1: {state}]"
    assert (await commands.command_output("b1")).text == f"[b1: {state}]"


async def test_output_is_bounded_and_time_is_limited(machine: GuardedMachine, holder: str) -> None:
    box = Sandbox("strict", machine.workspace)
    hasty = CommandTools(Workspace(machine.workspace), ToolOptions(command_seconds=1, sandbox=box))
    result = await hasty.run_command("yes")
    assert "[stopped: the time limit of 1 s was reached]" in result.text
    assert len(result.text) < 10_000


def broken_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a `bwrap` with this script first on PATH."""
    program = tmp_path / "programs/bwrap"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    backend.cache_clear()


@pytest.mark.parametrize("script", ["exit 1", "echo broken >&2; exit 127", "kill -9 $$"])
def test_a_broken_program_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    broken_path(tmp_path, monkeypatch, script)
    assert backend(Path("/nowhere")).name != "bubblewrap"
    backend.cache_clear()


def test_a_program_of_the_workspace_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_path(tmp_path, monkeypatch, f"touch {tmp_path}/ran")
    backend(tmp_path.resolve())
    assert not (tmp_path / "ran").exists()
    backend.cache_clear()


async def test_without_a_sandbox_strict_refuses_and_auto_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_path(tmp_path, monkeypatch, "echo no namespaces here >&2; exit 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "programs/bwrap"))
    workspace = Workspace(tmp_path)
    strict = CommandTools(workspace, ToolOptions(sandbox=Sandbox("strict", workspace.root)))
    with pytest.raises(ToolError, match=r"not run.*strict.*no namespaces here.*Install bubblewrap"):
        await strict.run_command("touch ran")
    assert not (tmp_path / "ran").exists()
    auto = CommandTools(workspace, ToolOptions(sandbox=Sandbox("auto", workspace.root)))
    assert (await auto.run_command("echo yes")).text == "yes"
    backend.cache_clear()


def test_profile_of_macos_holds_writes_secrets_and_network(machine: GuardedMachine) -> None:
    box = Sandbox("auto", machine.workspace, (machine.home / ".ecoshell-home",))
    lines = box.profile(network=False).splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert f'(allow file-write* (subpath "{machine.workspace}"))' in lines
    hooks = f'(deny file-write* (subpath "{machine.workspace}/.git/hooks"))'
    assert lines.index(hooks) > lines.index(f'(allow file-write* (subpath "{machine.workspace}"))')
    for name in (".ssh", ".aws", ".netrc", ".ecoshell-home"):
        assert f'(deny file-read* file-write* (subpath "{machine.home}/{name}"))' in lines
    for name in (".git", ".config"):
        folder = f'(literal "{machine.workspace}/{name}")'
        assert f"(deny file-write-create file-write-unlink {folder})" in lines
    skill = machine.home / ".ecoshell-home" / "skills"
    skill.mkdir()
    assert lines[-1] == "(deny network*)"
    reads = box.profile(False, [skill]).splitlines()
    assert reads[-2:] == [f'(allow file-read* (subpath "{skill}"))', "(deny network*)"]
    assert "(deny network*)" not in box.profile(network=True)
    assert all(line.count("(") == line.count(")") for line in lines)


def test_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from ecoshell.tools.sandbox import Sandbox; import os, sys; "
    )
    program += f"Sandbox('auto', Path({str(tmp_path)!r})).environment({{}}); "
    program += f"Sandbox('auto', Path({str(tmp_path)!r})).wrap(['true'], False); os._exit(0)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    folders: list[set[str]] = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        folders.append({path.name for path in tmp_path.glob("ecoshell-sandbox-*")})
    assert [len(names) for names in folders] == [1, 1]
    assert folders[0] != folders[1]
