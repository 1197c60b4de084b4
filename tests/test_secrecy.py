"""Secrets are removed from the environment and masked in everything that comes back."""

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
def known(monkeypatch):
    """One key in the environment, and no others."""
    monkeypatch.setattr(secrecy, "_added_secrets", set())
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    secrecy.protect_secrets()
    yield
    monkeypatch.undo()
    secrecy.protect_secrets()


def test_a_key_is_masked_wherever_it_stands():
    call = Call("write_file", {"path": "a", "content": [f"x{KEY}y", {KEY: 1}]}, "c1")
    assert mask_secrets(call).arguments == {"path": "a", "content": [f"x{MARK}y", {MARK: 1}]}
    assert mask_secrets(Observation(f"{KEY} and {KEY}", changes=f"+{KEY}")).text == f"{MARK} and {MARK}"
    assert mask_secrets((KEY, 3, None)) == (MARK, 3, None)


def test_what_has_no_key_in_it_stays_the_very_same_object():
    call = Call("write_file", {"path": "a", "content": ["x", {"y": 1}]}, "c1")
    assert mask_secrets(call) is call


def test_short_values_and_plain_words_are_no_keys(monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "postgres")
    monkeypatch.setenv("SOME_TOKEN", "ab12")
    secrecy.protect_secrets()
    assert mask_secrets("postgres ab12") == "postgres ab12"


@given(st.text(), st.text(), st.lists(st.integers(0, 60), max_size=8))
def test_a_key_in_pieces_is_masked_and_nothing_else_is_lost(before, after, cuts):
    text, stream = f"{before}{KEY[:5]}{KEY}{KEY[:4]}{after}", MaskedStream()
    places = [0, *sorted(cuts), len(text)]
    told = [stream.feed(text[one:other]) for one, other in pairwise(places)]
    assert "".join((*told, stream.end())) == text.replace(KEY, MARK)


_PROGRAM = """
import json, os, subprocess, sys
from ecoshell import secrecy
secrecy.claim_process()
secrecy.protect_secrets()
look = "tr '\\\\0' '\\\\n' < /proc/$PPID/environ"
shown = subprocess.run(["/bin/sh", "-c", look], capture_output=True, text=True).stdout
print(json.dumps({"shown": shown, "mine": "OPENAI_API_KEY" in os.environ, "kept": secrecy.environ["OPENAI_API_KEY"]}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_program_that_is_started_finds_a_key_in_the_environment_of_the_shell():
    environ = {**helper_environ(), "OPENAI_API_KEY": KEY, "PLAIN": "to be seen"}
    found = json.loads(
        subprocess.run([sys.executable, "-c", _PROGRAM], env=environ, capture_output=True, check=True).stdout
    )
    assert KEY not in found["shown"]
    assert (found["mine"], found["kept"]) == (False, KEY)


_LOOKED_INTO = """
import os, subprocess
from ecoshell import secrecy
if os.geteuid() == 0:
    os.setuid(65534)  # root may look into everything
secrecy.close_process()
print(subprocess.run(["cat", f"/proc/{os.getpid()}/environ"], capture_output=True).returncode)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_other_program_of_the_user_may_look_into_the_shell():
    command = [sys.executable, "-c", _LOOKED_INTO]
    done = subprocess.run(command, env=helper_environ(), capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stderr


def test_a_program_that_uses_the_modules_keeps_its_environment():
    assert os.environ["OPENAI_API_KEY"] == KEY
