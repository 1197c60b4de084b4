"""Remote models as the shell casts them: settings, keys, and the helper process that comes and goes with the shell."""

import json
from contextlib import aclosing
from decimal import Decimal

import pytest
from hostile_server import hostile_server
from processes import process_appears, processes_of

from ecoshell.assembly.shell import assemble
from ecoshell.errors import ModelMissing
from ecoshell.events import Answer, Reasoned
from ecoshell.options import Options
from ecoshell.paths import user_paths

MINE = """
[models."openai/mine"]
base_url = "http://127.0.0.1:1/v1"
native_tools = true
context = 4096
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECOSHELL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    for variable in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    user_paths().settings_file.parent.mkdir(parents=True)
    user_paths().settings_file.write_text(MINE)
    return tmp_path / "home"


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "script.jsonl"
    file.write_text(json.dumps({"text": "It is done."}) + "\n")
    return f"script:{file}"


async def test_what_the_settings_say_of_a_remote_model_reaches_its_traits():
    shell = await assemble(Options(model="openai/mine", price=(Decimal(1), Decimal(4))))
    traits = shell.deps.models.current.model.traits
    await shell.aclose()
    assert (traits.native_tools, traits.context) == (True, 4096)
    assert traits.price is not None
    assert (traits.price.rates.input, traits.price.rates.output, traits.price.source) == (
        1,
        4,
        "--price",
    )


@pytest.mark.parametrize(
    ("mode", "asks", "said", "sent"),
    [
        ("single", 1, "", None),
        ("single", 1, "temperature = 0.4", 0.4),
        ("umi", 2, 'temperature = "auto"', None),
        ("umi", 2, "temperature = 0.4", 0.4),
    ],
)
async def test_steps_and_answers_have_the_temperature_of_the_settings_or_the_providers(
    mode, asks, said, sent
):
    with hostile_server() as server:
        name = "good" if mode == "single" else "ender"
        address = f'[models."openai/{name}"]\nbase_url = "{server.openai}"\n'
        user_paths().settings_file.write_text(f"[agent]\n{said}\n{address}")
        shell = await assemble(Options(model=f"openai/{name}", mode=mode))
        events = [event async for event in shell.ask("Is it enough?")]
        await shell.aclose()
        assert [event.text for event in events if isinstance(event, Answer)]
        assert len(server.asked) == asks
        assert {body.get("temperature") for body in server.asked} == {sent}


async def test_what_a_model_reasons_is_shown_kept_and_sent_back_to_its_own_server():
    with hostile_server() as server:
        user_paths().settings_file.write_text(
            f'[models."openai/reasoner"]\nbase_url = "{server.openai}"\n'
        )
        shell = await assemble(Options(model="openai/reasoner"))
        for question in ("Is it?", "And is that so?"):
            events = [event async for event in shell.ask(question)]
        copied, session = (await shell.command("/copy")).value, shell.session
        await shell.aclose()
        again = await assemble(Options(model="openai/reasoner", resume=session))
        past = again.past
        await again.aclose()
        assert [event.text for event in past if isinstance(event, Reasoned)] == [
            "Let me think."
        ] * 2
        assert [event.text for event in events if isinstance(event, Answer)] == ["The answer."]
        assert events[-1].answer == copied == "The answer."
        assert len(server.asked) == 2
        assert "The answer." in json.dumps(server.asked[1]["messages"])
        (answer,) = [one for one in server.asked[1]["messages"] if one["role"] == "assistant"]
        assert answer == {
            "role": "assistant",
            "content": "The answer.",
            "reasoning_content": "Let me think.",
        }


async def test_a_native_call_that_cannot_run_gets_its_fault_as_a_result(home):
    with hostile_server() as server:
        model = f'[models."openai/wrong-call"]\nbase_url = "{server.openai}"\nnative_tools = true\n'
        user_paths().settings_file.write_text(f"[agent]\ntemperature = 0.9\n{model}")
        shell = await assemble(Options(model="openai/wrong-call"))
        async for _ in shell.ask("Which files?"):
            pass
        await shell.aclose()
        assert [body["temperature"] for body in server.asked][:2] == [0.9, 0.9]
        *_, call, result = server.asked[1]["messages"]
        assert call["tool_calls"][0]["id"] == result["tool_call_id"]
        assert "do not fit" in result["content"] or "no tool called" in result["content"]


async def test_the_helper_loads_once_a_question_is_on_its_way_and_ends_with_the_shell(home):
    async with aclosing(await assemble(Options(model="openai/mine"))) as shell:
        assert not any("remote_worker" in line for line in processes_of(home))
        await shell.warm()
        await process_appears(home, "remote_worker")
    assert processes_of(home) == []


async def test_the_helper_starts_when_a_remote_model_is_changed_to(home, script):
    async with aclosing(await assemble(Options(model=script))) as shell:
        assert processes_of(home) == []
        await shell.command("/model openai/mine")
        await process_appears(home, "remote_worker")
    assert processes_of(home) == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai/gpt-4o", "Set OPENAI_API_KEY"),
        ("gpt-4o-mimi", "gpt-4o-mini"),
        ("embeded", "Did you mean embedded?"),
    ],
)
async def test_a_model_that_cannot_be_had_leaves_the_old_one_in_its_place(home, script, name, told):
    shell = await assemble(Options(model=script))
    with pytest.raises(ModelMissing) as caught:
        await shell.command(f"/model {name}")
    answered = [event async for event in shell.ask("Is it done?")][-1]
    await shell.aclose()
    assert told in str(caught.value)
    assert (shell.deps.models.name, answered.answer) == (script, "It is done.")
    assert processes_of(home) == []


async def test_a_model_that_cannot_be_had_opens_no_shell(home):
    with pytest.raises(
        ModelMissing, match="Set GEMINI_API_KEY, or store the key with: keyring set"
    ):
        await assemble(Options(model="gemini/gemini-2.5-flash"))
    assert processes_of(home) == []
