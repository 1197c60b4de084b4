"""Local model servers: the models they list and the names ecoshell gives them."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from model_servers import (
    EMPTY_OLLAMA,
    LLAMA_SERVER,
    LM_STUDIO,
    OLLAMA,
    VLLM,
    ModelServer,
    model_server,
)

from ecoshell.models.servers import Served, Servers

NOWHERE = {
    "OLLAMA_HOST": "127.0.0.1:9",
    "LM_STUDIO_API_BASE": "http://127.0.0.1:9/v1",
    "LLAMAFILE_API_BASE": "http://127.0.0.1:9/v1",
    "HOSTED_VLLM_API_BASE": "http://127.0.0.1:9/v1",
}


TIMEOUT_S = 20.0  # generous, because test machines are busy


def servers_in(environ: Mapping[str, str]) -> Servers:
    return Servers(environ, seconds=TIMEOUT_S)


@pytest.fixture
def serve():
    """Starts servers with these responses."""
    with ExitStack() as stack:
        yield lambda answers, **more: stack.enter_context(model_server(answers, **more))


def named(models: list[Served]) -> dict[str, Served]:
    return {model.name: model for model in models}


def test_ollama_models_are_listed_with_context_size_and_tool_support(serve):
    ollama = serve(OLLAMA)
    models = named(servers_in({**NOWHERE, "OLLAMA_HOST": ollama.host}).models())
    assert models == {
        "ollama_chat/qwen3:4b": Served(
            "ollama_chat/qwen3:4b",
            "Ollama",
            f"http://{ollama.host}",
            8192,
            native_tools=True,
            size_bytes=2_500_000_000,
        )
    }


@pytest.mark.parametrize(
    ("answers", "variable", "name", "context", "tools"),
    [
        (LM_STUDIO, "LM_STUDIO_API_BASE", "lm_studio/qwen3-4b", 16384, True),
        (
            {"/v1/models": {"data": [{"id": "old"}]}},
            "LM_STUDIO_API_BASE",
            "lm_studio/old",
            None,
            None,
        ),
        (LLAMA_SERVER, "LLAMAFILE_API_BASE", "llamafile/small.gguf", 4096, True),
        (VLLM, "HOSTED_VLLM_API_BASE", "hosted_vllm/Qwen/Qwen3-4B", 16384, None),
    ],
)
def test_models_of_other_servers_are_listed(
    serve,
    answers: Mapping[str, Any],
    variable: str,
    name: str,
    context: int | None,
    tools: bool | None,
):
    server: ModelServer = serve(answers)
    (model,) = servers_in({**NOWHERE, variable: f"http://{server.host}/v1"}).models()
    assert (model.name, model.base_url, model.context, model.native_tools) == (
        name,
        f"http://{server.host}/v1",
        context,
        tools,
    )


def test_a_server_that_never_answers_does_not_block(serve):
    silent = serve({}, silent=True)  # never answers
    servers = Servers({**NOWHERE, "LLAMAFILE_API_BASE": f"http://{silent.host}/v1"})
    assert servers.models() == []
    assert servers.models() == []


def test_a_reachable_server_is_queried_again(serve):
    answers = dict(VLLM)
    vllm = serve(answers)
    servers = servers_in({**NOWHERE, "HOSTED_VLLM_API_BASE": f"http://{vllm.host}/v1"})
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
def test_invalid_responses_list_no_models(serve, answers: Mapping[str, Any]):
    server = serve(answers)
    assert servers_in({**NOWHERE, "OLLAMA_HOST": server.host}).models() == []


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
def test_the_address_follows_ollamas_variable(host: str, address: str):
    model = servers_in({"OLLAMA_HOST": host}).served("ollama/x", ask=False)
    assert model is not None
    assert model.base_url == address


@pytest.mark.parametrize("host", ["ollama.example.com", "http://10.0.0.7:11434", "http://[bad"])
def test_remote_hosts_are_not_queried(host: str):
    assert servers_in({"OLLAMA_HOST": host}).served("ollama_chat/x") is None


def test_a_server_model_resolves_before_its_list_is_fetched(serve):
    ollama = serve(OLLAMA)
    servers = servers_in({**NOWHERE, "OLLAMA_HOST": ollama.host})
    model = servers.served("ollama_chat/qwen3:4b")
    assert model is not None
    assert (model.context, model.native_tools) == (8192, True)
    assert servers.served("openai/gpt-4o") is None
    assert servers.served("ollama_chat") is None


def test_no_server_is_queried_without_permission(serve):
    ollama = serve(OLLAMA)
    model = servers_in({**NOWHERE, "OLLAMA_HOST": ollama.host}).served(
        "ollama_chat/qwen3:4b", ask=False
    )
    assert model == Served("ollama_chat/qwen3:4b", "Ollama", f"http://{ollama.host}")
    assert ollama.asked == []


@pytest.mark.parametrize(
    ("answers", "variable", "path", "expected"),
    [
        (
            EMPTY_OLLAMA,
            "OLLAMA_HOST",
            "",
            (("Ollama", "ollama pull NAME downloads one"),),
        ),
        ({"/v1/models": {"data": []}}, "LLAMAFILE_API_BASE", "/v1", (("llama.cpp", ""),)),
        (OLLAMA, "OLLAMA_HOST", "", ()),
        ({}, "OLLAMA_HOST", "", ()),
    ],
)
def test_a_server_that_answers_without_models_is_told_from_one_that_does_not_answer(
    serve, answers: Mapping[str, Any], variable: str, path: str, expected: tuple[Any, ...]
):
    servers = servers_in({**NOWHERE, variable: f"http://{serve(answers).host}{path}"})
    servers.models()
    assert servers.empty() == expected
