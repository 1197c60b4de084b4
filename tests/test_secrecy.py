"""Secrets are removed from the environment and masked in all output."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshell import secrecy
from ecoshell.messages import Call, Observation
from ecoshell.models.tokens import helper_environ
from ecoshell.secrecy import MARK, MaskedStream, mask_secrets

KEY = "sk-abcabd-0123456789"


@pytest.fixture(autouse=True)
def environment_key(monkeypatch):
    """Set one key in the environment and no other secrets."""
    monkeypatch.setattr(secrecy, "_added_secrets", set())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    secrecy.protect_secrets()
    yield
    monkeypatch.undo()
    secrecy.protect_secrets()


def test_a_key_is_masked_anywhere():
    call = Call("write_file", {"path": "a", "content": [f"x{KEY}y", {KEY: 1}]}, "c1")
    assert mask_secrets(call).arguments == {"path": "a", "content": [f"x{MARK}y", {MARK: 1}]}
    assert (
        mask_secrets(Observation(f"{KEY} and {KEY}", changes=f"+{KEY}")).text
        == f"{MARK} and {MARK}"
    )
    assert mask_secrets((KEY, 3, None)) == (MARK, 3, None)


def test_a_value_without_keys_is_returned_itself():
    call = Call("write_file", {"path": "a", "content": ["x", {"y": 1}]}, "c1")
    assert mask_secrets(call) is call


def test_short_values_and_common_words_are_not_masked(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "postgres")
    monkeypatch.setenv("SOME_TOKEN", "ab12")
    secrecy.protect_secrets()
    assert mask_secrets("postgres ab12") == "postgres ab12"


@given(st.text(), st.text(), st.lists(st.integers(0, 60), max_size=8))
def test_a_key_split_over_pieces_is_masked_and_nothing_else_is_lost(prefix, suffix, cuts):
    text, stream = f"{prefix}{KEY[:5]}{KEY}{KEY[:4]}{suffix}", MaskedStream()
    places = [0, *sorted(cuts), len(text)]
    output = [stream.feed(text[start:end]) for start, end in pairwise(places)]
    assert "".join((*output, stream.end())) == text.replace(KEY, MARK)


_PROGRAM = """
import json, os, subprocess, sys
from ecoshell import secrecy
secrecy.claim_process()
secrecy.protect_secrets()
look = "tr '\\\\0' '\\\\n' < /proc/$PPID/environ"
environ = subprocess.run(["/bin/sh", "-c", look], capture_output=True, text=True).stdout
is_set, key = "OPENAI_API_KEY" in os.environ, secrecy.environ["OPENAI_API_KEY"]
print(json.dumps({"environ": environ, "is_set": is_set, "key": key}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_child_processes_cannot_read_a_key_from_the_environment_of_the_shell():
    environ = {**helper_environ(), "OPENAI_API_KEY": KEY, "PLAIN": "visible"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environ, capture_output=True, check=True
    )
    report = json.loads(done.stdout)
    assert KEY not in report["environ"]
    assert (report["is_set"], report["key"]) == (False, KEY)


_INSPECTED = """
import os, subprocess
from ecoshell import secrecy
if os.geteuid() == 0:
    os.setuid(65534)  # root can read every process
secrecy.close_process()
print(subprocess.run(["cat", f"/proc/{os.getpid()}/environ"], capture_output=True).returncode)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_other_programs_of_the_user_cannot_inspect_the_shell():
    command = [sys.executable, "-c", _INSPECTED]
    done = subprocess.run(
        command, env=helper_environ(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "1\n", done.stderr


def test_a_program_that_imports_the_modules_keeps_its_environment():
    assert os.environ["OPENAI_API_KEY"] == KEY
