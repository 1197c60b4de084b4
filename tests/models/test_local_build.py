"""The installation of llama.cpp in the background."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ecoshell.models.local_build import LocalBuild, current_build, start


def wait_for(condition, seconds: float = 60.0):
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return result


def program(text: str) -> list[str]:
    return [sys.executable, "-u", "-c", text]


def test_progress_is_read_from_the_log_and_the_stamp_is_touched_at_the_end(tmp_path: Path):
    gate, stamp, log = tmp_path / "gate", tmp_path / "stamp", tmp_path / "log"
    code = f"""
import pathlib, time
print('[1/200] Building'); print('[50/200] Building')
while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.02)
"""
    assert start(program(code), stamp, log)
    build = wait_for(lambda: (found := current_build(log)) and found.percent and found)
    assert build.running
    assert build.percent == 25
    started = time.time() - 3_000
    log.write_text(f"Started at {started:.0f}\n[50/200] Building\n")
    assert current_build(log).seconds_left == pytest.approx(9_000, rel=0.5)
    assert not start(program(code), stamp, log)  # it runs already
    assert not stamp.exists()
    gate.touch()
    wait_for(stamp.exists)
    wait_for(lambda: current_build(log) is None)


def test_a_failed_installation_names_its_log_and_may_be_started_again(tmp_path: Path):
    stamp, log = tmp_path / "stamp", tmp_path / "log"
    assert start(program("print('no compiler'); raise SystemExit(3)"), stamp, log)
    build = wait_for(lambda: (found := current_build(log)) and not found.running and found)
    assert build.words == f"llama.cpp could not be installed; the log is {log}"
    assert "no compiler" in log.read_text()
    assert not stamp.exists()
    assert start(program("pass"), stamp, log)
    wait_for(stamp.exists)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (LocalBuild(running=True), "preparing to compile llama.cpp"),
        (LocalBuild(running=True, percent=34), "compiling llama.cpp: 34 %"),
        (
            LocalBuild(running=True, percent=34, seconds_left=366),
            "compiling llama.cpp: 34 %, 6 min 6 s left",
        ),
    ],
)
def test_the_state_in_words(build: LocalBuild, words: str):
    assert build.words == words


def test_make_leaves_out_what_ecoshell_does_not_use_and_keeps_the_users_arguments() -> None:
    root = Path(__file__).parents[2]
    show = "show: ; @printf '%s' \"$$CMAKE_ARGS\""
    done = subprocess.run(
        ["make", "--silent", "--directory", str(root), f"--eval={show}", "show"],
        env={**os.environ, "CMAKE_ARGS": "-DGGML_CUDA=on"},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments = dict(argument.split("=", 1) for argument in shlex.split(done.stdout))
    assert arguments["-DGGML_CUDA"] == "on"
    assert arguments["-DLLAVA_BUILD"] == "OFF"
    included = Path(arguments["-DCMAKE_PROJECT_llama_cpp_INCLUDE"])
    assert "set(LLAMA_BUILD_COMMON OFF)" in included.read_text(encoding="utf-8")
