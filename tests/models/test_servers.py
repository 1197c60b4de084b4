"""Model servers on this machine: which models they say they have, and how those are called."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from llama_server import free_port
from model_servers import LLAMA_SERVER, LM_STUDIO, OLLAMA, VLLM, ModelServer, model_server

from ecoshell.models.servers import Served, Servers

NOWHERE = {
    "OLLAMA_HOST": "127.0.0.1:9",
    "LM_STUDIO_API_BASE": "http://127.0.0.1:9/v1",
    "LLAMAFILE_API_BASE": "http://127.0.0.1:9/v1",
    "HOSTED_VLLM_API_BASE": "http://127.0.0.1:9/v1",
}


PATIENCE = 20.0
"""Seconds: the machines that tests run on have more to do."""


def patient(environ: Mapping[str, str]) -> Servers:
    return Servers(environ, seconds=PATIENCE)


@pytest.fixture
def serve():
    """Starts a server with these answers."""
    with ExitStack() as stack:
        yield lambda answers, **more: stack.enter_context(model_server(answers, **more))


def named(models: list[Served]) -> dict[str, Served]:
    return {model.name: model for model in models}


def test_ollama_says_which_models_it_has_what_they_can_and_with_which_context_they_run(serve):
    ollama = serve(OLLAMA)
    found = named(patient({**NOWHERE, "OLLAMA_HOST": ollama.host}).models())
    assert found == {
        "ollama_chat/qwen3:4b": Served(
            "ollama_chat/qwen3:4b", "Ollama", f"http://{ollama.host}", 8192, native_tools=True, size_bytes=2_500_000_000
        )
    }


@pytest.mark.parametrize(
    ("answers", "variable", "name", "context", "tools"),
    [
        (LM_STUDIO, "LM_STUDIO_API_BASE", "lm_studio/qwen3-4b", 16384, True),
        ({"/v1/models": {"data": [{"id": "old"}]}}, "LM_STUDIO_API_BASE", "lm_studio/old", None, None),
        (LLAMA_SERVER, "LLAMAFILE_API_BASE", "llamafile/small.gguf", 4096, True),
        (VLLM, "HOSTED_VLLM_API_BASE", "hosted_vllm/Qwen/Qwen3-4B", 16384, None),
    ],
)
def test_other_servers_are_asked_for_theirs(
    serve, answers: Mapping[str, Any], variable: str, name: str, context: int | None, tools: bool | None
):
    server: ModelServer = serve(answers)
    (found,) = patient({**NOWHERE, variable: f"http://{server.host}/v1"}).models()
    assert (found.name, found.base_url, found.context, found.native_tools) == (
        name,
        f"http://{server.host}/v1",
        context,
        tools,
    )


def test_a_server_that_takes_the_question_and_never_answers_holds_nobody_up(serve):
    silent = serve({}, silent=True)  # it does not answer before the test is over
    servers = Servers({**NOWHERE, "LLAMAFILE_API_BASE": f"http://{silent.host}/v1"})
    assert servers.models() == []
    assert servers.models() == []


def test_a_server_that_is_switched_off_is_not_asked_again(serve):
    port = free_port()
    servers = patient({**NOWHERE, "OLLAMA_HOST": f"127.0.0.1:{port}"})
    assert servers.models() == []
    ollama = serve(OLLAMA, port=port)
    assert servers.models() == []
    assert ollama.asked == []
    assert patient({**NOWHERE, "OLLAMA_HOST": ollama.host}).models() != []


def test_one_that_answers_is_asked_again_for_what_it_has_by_then(serve):
    answers = dict(VLLM)
    vllm = serve(answers)
    servers = patient({**NOWHERE, "HOSTED_VLLM_API_BASE": f"http://{vllm.host}/v1"})
    assert list(named(servers.models())) == ["hosted_vllm/Qwen/Qwen3-4B"]
    answers["/v1/models"] = {"data": [{"id": "another"}]}
    assert list(named(servers.models())) == ["hosted_vllm/another"]


@pytest.mark.parametrize(
    "answers",
    [
        {"/api/tags": ["no object"]},
        {"/api/tags": {"models": "none"}},
        {"/api/tags": {"models": [{"name": {}}]}, "/api/ps": {"models": [{"name": []}]}},
        {
            "/api/tags": {
                "models": [
                    1,
                    {},
                    {"name": "two\nlines"},
                    {"name": "\x1b[2J"},
                    {"name": ""},
                    {"name": "x" * 1000},
                    {"name": [1]},
                ]
            }
        },
    ],
)
def test_whoever_else_listens_there_is_no_model_server(serve, answers: Mapping[str, Any]):
    server = serve(answers)
    assert patient({**NOWHERE, "OLLAMA_HOST": server.host}).models() == []


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("http://localhost:5/", "http://localhost:5"),
        ("[::1]:5", "http://[::1]:5"),
    ],
)
def test_the_address_is_the_programs_own(host: str, address: str):
    found = patient({"OLLAMA_HOST": host}).served("ollama/x", ask=False)
    assert found is not None
    assert found.base_url == address


@pytest.mark.parametrize("host", ["ollama.example.com", "http://10.0.0.7:11434", "http://[bad"])
def test_nothing_beyond_this_machine_is_asked(host: str):
    assert patient({"OLLAMA_HOST": host}).served("ollama_chat/x") is None


def test_a_name_of_a_server_is_known_before_its_list_was_asked_for(serve):
    ollama = serve(OLLAMA)
    servers = patient({**NOWHERE, "OLLAMA_HOST": ollama.host})
    found = servers.served("ollama_chat/qwen3:4b")
    assert found is not None
    assert (found.context, found.native_tools) == (8192, True)
    assert servers.served("openai/gpt-4o") is None
    assert servers.served("ollama_chat") is None


def test_without_leave_no_server_is_asked(serve):
    ollama = serve(OLLAMA)
    found = patient({**NOWHERE, "OLLAMA_HOST": ollama.host}).served("ollama_chat/qwen3:4b", ask=False)
    assert found == Served("ollama_chat/qwen3:4b", "Ollama", f"http://{ollama.host}")
    assert ollama.asked == []
