"""Every setting there is: its default, what it may be, and its words, which stand below it here."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from ecoshell.budget import Amount, nano_to_usd_text, parse_amount
from ecoshell.errors import UsageError
from ecoshell.options import RETRY_SECONDS

_NUMBER = re.compile(r"[0-9.]+", re.ASCII)
SERVER_NAME = r"[A-Za-z0-9_-]{1,40}"
"""What a server may be called: its tools are called after it."""
_DIGITS = 64
"""More than any amount has, written without an exponent."""
_HOTTEST = 2
"""The highest temperature that providers take."""
_LEAST_SHARE, _MOST_SHARE = 0.3, 0.95
"""Of the context, at which it may be compacted."""


def _plain_number(value: Any) -> Any:
    """Refuse true and false where pydantic would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _read_amount(value: Any) -> tuple[str, Amount | None]:
    """The text of an amount, and what it says; None where it says nothing that can be an amount."""
    plain = isinstance(value, Decimal) and abs(value.adjusted()) < _DIGITS
    text = f"{value:f}" if plain else str(value).strip()
    try:
        return text, None if isinstance(value, bool) else parse_amount(text)
    except UsageError:
        return text, None


def _rate(value: Any) -> Any:
    """A rate that is typed as money is, such as `15c`; any other value as it is."""
    read = _read_amount(value)[1] if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()) else None
    return _plain_number(value) if read is None or read.unit != "usd" else Decimal(nano_to_usd_text(read.value))


def _auto_or_at_least(least: int) -> PlainValidator:
    def check(value: Any) -> int | Literal["auto"]:
        if value == "auto":
            return "auto"
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise ValueError(f'must be "auto" or a whole number of at least {least}')

    return PlainValidator(check)


def _temperature(value: Any) -> float | Literal["auto"]:
    if value == "auto":
        return "auto"
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number <= _HOTTEST:
        raise ValueError(f'must be "auto" or a number from 0 to {_HOTTEST}')
    return number


def _share_or_off(value: Any) -> float | Literal["off"]:
    if value == "off":
        return "off"
    try:
        share = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        share = float("nan")
    if not _LEAST_SHARE <= share <= _MOST_SHARE:
        raise ValueError(f'must be "off" or a number from {_LEAST_SHARE} to {_MOST_SHARE}')
    return share


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a name")
    return value.strip()


def _address(value: str) -> str:
    parts = None
    with suppress(ValueError):
        parts = urlsplit(value)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address such as http://localhost:8000/v1")
    if parts.username or parts.password:
        raise ValueError("must not carry a name or a password; keys belong in the environment or the keyring")
    return value


def _said(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _amount_in(demand: str, *, tokens: bool = False, off: bool = False) -> PlainValidator:
    """Takes an amount of dollars, and where it is said of tokens or the word `off`; `demand` says what it must be."""

    def check(value: Any) -> str:
        if off and str(value).strip().lower() == "off":
            return "off"
        text, read = _read_amount(value)
        if read is None or (read.unit != "usd" and not tokens):
            raise ValueError(demand)
        return text

    return PlainValidator(check)


def _ledger_address(value: str) -> str:
    from ecoshell.budget.address import require_ledger_address

    try:
        return require_ledger_address(value)
    except UsageError as error:
        raise ValueError(f"is not the address of a team ledger. {error}") from None


AmountText = Annotated[str, _amount_in('must be dollars, such as "0.50", or tokens, such as "20000tok"', tokens=True)]
Dollars = Annotated[str, _amount_in('must be dollars, such as "0.05"')]
DollarsOrOff = Annotated[str, _amount_in('must be dollars, such as "0.05", or "off"', off=True)]
Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True, ge=1)]
Said = Annotated[str, AfterValidator(_said)]
Rate = Annotated[Decimal, BeforeValidator(_rate), Field(ge=0, le=1_000_000, allow_inf_nan=False)]


AutoOrWhole = Annotated[int | Literal["auto"], _auto_or_at_least(1)]


class Section(BaseModel):
    """A table of the settings file; refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetSettings(Section):
    """Caps that stand from the start, each in dollars or in tokens, and when to ask before spending."""

    turn: AmountText | None = None
    """What one question may cost: dollars, such as 0.50, or tokens, such as 20000tok."""
    session: AmountText | None = None
    """What a session may cost; `--budget` takes its place for one run, `/budget` while it goes on."""
    day: AmountText | None = None
    """What all sessions together may cost in a day."""
    month: AmountText | None = None
    """What all sessions together may cost in a month."""
    ask_above: DollarsOrOff | None = None
    """A step that may cost more than this many dollars is asked about first; `off` is never, as without it."""
    ledger: Annotated[str, AfterValidator(_ledger_address)] | None = None
    """PostgreSQL ledger whose caps a team shares, such as `postgresql://ann@db.example.org/ledger`. The password is
    read from PGPASSWORD, ~/.pgpass or the keyring. Also `ECOSHELL_LEDGER`."""
    project: Said | None = None
    """Project of the calls in the team ledger; the default is the name of the workspace folder."""


class AgentSettings(Section):
    """How the agent works: what it registers, and how far it may go."""

    registration: Literal["auto", "names", "all", "all_text"] = "auto"
    """What the model sees of tools at first: names, every document (all; all_text is shorter), or what serves best."""
    presentation: Literal["auto", "grow", "stable"] = "auto"
    """How registered tools reach the model: the tool array grows, it stays as a provider has cached it, or auto, which
    leaves loading to the provider's own tool search where there is one."""
    mode: Literal["single", "umi", "auto"] = "single"
    """Who thinks: one model, a planner, a caller and a summarizer (umi), or what experience says (auto)."""
    strategy: Annotated[Literal["react", "dfsdt", "tot", "graph"] | str, PlainValidator(_name)] = "react"
    """In which order it thinks: one path, a search that goes back (dfsdt, tot), branches side by side (graph), or as a
    plugin's strategy has it."""
    max_steps: AutoOrWhole = "auto"
    """Steps after which a turn has to end in an answer; `auto` is 24 for small local models, none for a capable model
    under a cap, and 200 otherwise."""
    max_output_tokens: AutoOrWhole = "auto"
    """Output tokens of one reply, reasoning included; `auto` is the model's own maximum, less as a cap runs out."""
    answer_tokens: Whole = 512
    """Tokens of the final answer, whose price is reserved before the first step."""
    temperature: Annotated[float | Literal["auto"], PlainValidator(_temperature)] = "auto"
    """How freely models choose their words in steps and answers: 0 takes the likeliest, up to 2; auto is what the
    model's file, its family or its provider recommends. Rankings, judgments and summaries are always at 0."""
    effort: Literal["auto", "off", "low", "medium", "high", "max"] = "auto"
    """How much models reason before they answer; auto leaves it to the provider."""
    context: Literal["auto", "off"] = "auto"
    """Whether the model is told where it works: date, system, and the workspace's path, files and git state."""
    instructions: Literal["ask", "trust", "off"] = "ask"
    """`AGENTS.md` of a project: asked about before it is trusted, trusted unasked, or never read, your own neither."""
    compact_model: Said | None = None
    """A model that writes the summary of /compact in the session's place; it reads the whole conversation for that."""
    compact_at: Annotated[float | Literal["off"], PlainValidator(_share_or_off)] = 0.8
    """Share of a model's context at which old results are trimmed and earlier steps become a summary; off for never."""


class PlanSettings(Section):
    """What the budget allows of each tool, planned before tools are used."""

    mode: Literal["off", "btp", "prompt", "btp+prompt"] = "btp"
    """Whether a plan says what may be used (btp), costs and budget are written into the prompt (prompt), or both."""
    threshold: Annotated[float, BeforeValidator(_plain_number), Field(ge=0, le=1)] = 0.15
    """The value from which on a tool with a history is worth a use; the paper's τ."""
    strict: Flag = False
    """Whether what is not planned is forbidden under a cap, as in the paper. Else a call that is asked for is refused
    only where the answer, or a use that is worth more for less, could no longer be paid, or after results
    that did not help."""
    earned_uses: Flag = True
    """Whether a use that helped earns the tool a further one in the same turn, as long as the budget has room."""
    budget_line: Flag = True
    """Whether a capable model under a cap reads what is left and what a step costs, one line after each step."""
    judge: Annotated[Literal["rules", "classifier", "model"] | str, PlainValidator(_name)] = "rules"
    """Who says whether a result helped: rules, the classifier of `ecoshell experience train`, the model, which costs a
    call each time, or a plugin's judge."""
    time_price: DollarsOrOff = "off"
    """What an hour of waiting is worth in dollars, counted into the cost of each tool."""
    resource_price: DollarsOrOff = "off"
    """What one of OpenCATP's price units, time and memory of a run as `ecoshell profile` measures them, is worth in
    dollars, counted into the cost of each profiled tool."""


class GraphSettings(Section):
    """What finished tool graphs are scored by."""

    alpha: Annotated[float, BeforeValidator(_plain_number), Field(ge=0, le=1)] = 0.5
    """How much what a plan has achieved weighs beside what it has cost; the paper's α."""
    most: Dollars = "0.05"
    """What a plan may cost at most in dollars, where no cap allows less; the paper's C_max."""
    checker: Said | None = None
    """A command that is given each such turn's answer on its standard input, and ends with 0 where it is right."""


class ExperienceSettings(Section):
    """What is remembered of each use of a tool; nothing of it leaves this machine."""

    record: Flag = True
    """Whether uses are recorded."""
    similarity: Literal["auto", "words", "embeddings"] = "auto"
    """Questions are compared by their words, whatever it says; the other words are those of older settings."""


class LearnSettings(Section):
    """Whether a model of this machine learns what a paid one is asked to do."""

    shadow: Flag = False
    """Whether it makes each call that a paid model makes, too; nothing of it is run, and nobody waits for it."""
    model: Said = "embedded"
    """The one that does: embedded, or local:FILE.gguf."""


class RegistrationSettings(Section):
    """When names alone are too many."""

    names_share: Annotated[float, BeforeValidator(_plain_number), Field(gt=0, le=1)] = 0.1
    """The part of the context that the tools' names may take before only a shortlist is shown."""


class LocalSettings(Section):
    """How models on this machine run."""

    n_gpu_layers: Annotated[int | Literal["auto"], _auto_or_at_least(-1)] = "auto"
    """Layers on the GPU; -1 is all of them."""
    threads: Annotated[int | Literal["auto"], _auto_or_at_least(1)] = "auto"
    """Processor threads a local model computes with."""
    context: Annotated[int, Field(strict=True, ge=512)] = 8192
    """Tokens of context a local model is opened with."""
    ask_servers: Flag = True
    """Whether Ollama, LM Studio, llama.cpp and vLLM are asked, on this machine alone, which models they have."""


class RemoteSettings(Section):
    """Remote models."""

    host_idle_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = 600
    """Seconds without a request after which the model host ends; 0 disables it, and each command loads litellm."""


class ApprovalSettings(Section):
    """Rules `tool` or `tool:pattern`, such as `run_command:git status*`; deny wins over ask, ask over allow."""

    allow: tuple[Said, ...] = ()
    """Calls that run without a question."""
    deny: tuple[Said, ...] = ()
    """Calls that never run."""
    ask: tuple[Said, ...] = ()
    """Calls that are asked about even where they only read."""


class ToolsSettings(Section):
    """What the built-in tools may do."""

    allow_private_addresses: Flag = False
    """Whether fetch_url may reach this machine and its local network."""
    command_seconds: Annotated[float, BeforeValidator(_plain_number), Field(gt=0, le=86_400)] = 120
    """Time limit of run_command and run_python."""
    prices: Mapping[str, Dollars] = Field(default_factory=dict[str, str])
    """What one use of a tool costs, by the tool's name, as where somebody else's service is paid for behind it."""


class PluginsSettings(Section):
    """Which plugins are asked for what they add; a table `[plugins.NAME]` has what a plugin of this name goes by."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    enabled: tuple[Said, ...] = ()
    """Plugins that come with ecoshell and are to be asked for more than commands, such as `git` for its tools."""
    disabled: tuple[Said, ...] = ()
    """Plugins that are not even loaded."""


def _env_text(value: Any) -> Any:
    """A value as the environment has it, also where it is typed as a number or a switch."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, Decimal)) else value


Texts = Mapping[str, Annotated[str, BeforeValidator(_env_text)]]


class McpServerSettings(Section):
    """One server, as other clients have it too: a command to start, or an address to connect to."""

    command: Said | None = None
    """The program to start, which is talked with over its standard input and output."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Texts = Field(default_factory=dict[str, str])
    """Variables it gets besides the few that every server has; `${NAME}` stands for one of yours."""
    cwd: Said | None = None
    """The folder it runs in; else the workspace."""
    url: Annotated[str, AfterValidator(_address)] | None = None
    """The address of a server that is reached over HTTP (streamable HTTP)."""
    headers: Texts = Field(default_factory=dict[str, str])
    """What each request to it carries, such as `Authorization`."""
    oauth: Texts = Field(default_factory=dict[str, str])
    """How it knows this client where that has to be agreed on: `client_id`, `client_secret`, `method`, `scope` and
    `metadata_url`, as far as they are needed."""
    trusted: Flag = False
    """Whether what its tools say of themselves is believed: one that says that it only reads then runs unasked."""
    sampling: Flag = False
    """Whether it may have the session's model write for it unasked, within the caps."""
    enabled: Flag = True
    """Whether its tools are offered."""
    seconds: Annotated[float, BeforeValidator(_plain_number), Field(gt=0, le=86_400)] = 60
    """What one call may take."""

    @model_validator(mode="after")
    def _one_way(self) -> "McpServerSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("must have either a command to start or a url to connect to")
        return self


class McpSettings(Section):
    """Servers whose tools the agent may use."""

    servers: Mapping[str, McpServerSettings] = Field(default_factory=dict[str, McpServerSettings])

    @field_validator("servers")
    @classmethod
    def _plainly_called(cls, servers: Mapping[str, McpServerSettings]) -> Mapping[str, McpServerSettings]:
        odd = next((name for name in servers if not re.fullmatch(SERVER_NAME, name)), None)
        if odd is not None:
            raise ValueError(f"cannot have a server called {odd!r}; use letters, digits, - and _, at most 40")
        return servers


class PriceSettings(Section):
    """Dollars per million tokens; what is left out costs as much as input or output."""

    input: Rate
    """Of the prompt."""
    output: Rate
    """Of what the model writes."""
    cached_input: Rate | None = None
    """Of the part of the prompt that the provider had kept."""
    cache_write: Rate | None = None
    """Of the part of the prompt that it keeps from now on."""
    reasoning: Rate | None = None
    """Of what the model thinks before it writes."""


class ModelSettings(Section):
    """What the user knows better about one model than the packaged file does."""

    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Address of an OpenAI-compatible server."""
    native_tools: Flag | None = None
    """Whether the model takes tools as its provider defines them; else calls are written as text."""
    context: Whole | None = None
    """Tokens the model's context holds."""
    vision: Flag | None = None
    """Whether the model accepts images; else the price file decides."""
    tool_search: Flag | None = None
    """Whether the provider loads deferred tools by a search of its own; else the model's name and address decide."""
    trusted: Flag | None = None
    """Whether the model may write and run what the request does not name; else its size decides."""
    price: PriceSettings | None = None


class ModelsSettings(Section):
    """Models to fall back on, and a table `[models."NAME"]` for each model the price file does not know enough of."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ModelSettings] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    fallback: tuple[Said, ...] = ()
    """Models that take over, in this order, when the model in use is unavailable; caps stay in force."""
    retry_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = RETRY_SECONDS
    """How long a call is retried after a provider refuses it (429), fails (5xx) or cannot be reached; 0 is never."""

    @property
    def named(self) -> Mapping[str, ModelSettings]:
        """The tables of single models, by name."""
        return self.__pydantic_extra__


class RoleSettings(Section):
    """The models of the mode umi's roles; one that is left out is played by the session's model."""

    planner: Said | None = None
    """Who decides what comes next."""
    caller: Said | None = None
    """Who makes the tool calls."""
    summarizer: Said | None = None
    """Who writes the answer."""


class UmiSettings(RoleSettings):
    """The mode umi: a model for each role, one by one or by a preset."""

    preset: Said | None = None
    """The preset that holds from the start; what is said of a single role goes before it."""
    presets: Mapping[str, RoleSettings] = Field(default_factory=dict[str, RoleSettings])

    @field_validator("presets")
    @classmethod
    def _no_roles(cls, presets: Mapping[str, RoleSettings]) -> Mapping[str, RoleSettings]:
        taken = [name for name in presets if name in RoleSettings.model_fields or not name.strip() or name == "-"]
        if taken:
            raise ValueError(f"cannot have a preset called {taken[0]!r}; choose another name")
        return presets

    @model_validator(mode="after")
    def _known(self) -> "UmiSettings":
        if self.preset is not None and self.preset not in self.presets:
            there = ", ".join(self.presets) or "none"
            raise ValueError(f"has no preset called {self.preset!r}; there is {there}")
        return self


class ModesSettings(Section):
    """Who thinks with which model."""

    umi: UmiSettings = UmiSettings()


class TuiSettings(Section):
    """How the chat looks."""

    theme: Said | None = None
    """The colours: a theme of the package, or the name of a TOML file in the folder `themes` beside the settings."""


class Settings(Section):
    """All settings; every one has a default."""

    model: Said = "embedded"
    """Who answers: embedded, local:FILE.gguf, or a name such as openai/gpt-4o-mini."""
    budget: BudgetSettings = BudgetSettings()
    agent: AgentSettings = AgentSettings()
    plan: PlanSettings = PlanSettings()
    graph: GraphSettings = GraphSettings()
    experience: ExperienceSettings = ExperienceSettings()
    learn: LearnSettings = LearnSettings()
    registration: RegistrationSettings = RegistrationSettings()
    local: LocalSettings = LocalSettings()
    remote: RemoteSettings = RemoteSettings()
    approval: ApprovalSettings = ApprovalSettings()
    tools: ToolsSettings = ToolsSettings()
    mcp: McpSettings = McpSettings()
    plugins: PluginsSettings = PluginsSettings()
    modes: ModesSettings = ModesSettings()
    models: ModelsSettings = ModelsSettings()
    tui: TuiSettings = TuiSettings()


NAMED = "*"
"""Stands in a key's path where the user chooses the name: `("models", "*", "price", "input")`."""


_OF_NAMES: tuple[tuple[str, ...], ...] = (("models",), ("modes", "umi", "presets"), ("mcp", "servers"))
"""Tables whose keys are names that the user chooses, each of a table of its own."""


def general(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path of a key with NAMED in the place of a name that the user chose."""
    for table in _OF_NAMES:
        if path[: len(table)] == table and len(path) > len(table) + 1:
            return (*table, NAMED, *path[len(table) + 1 :])
    return path


def table_of(field: FieldInfo) -> type[BaseModel] | None:
    """The table that a field of the schema is; None for one that holds a value."""
    parts = (field.annotation, *get_args(field.annotation))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)


def values(
    table: type[BaseModel] = Settings, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[BaseModel], FieldInfo]]:
    """Every setting that holds a value, in the order of the schema: its path, the table it is in, and its field."""
    for name, field in table.model_fields.items():
        path, below = (*above, name), table_of(field)
        if below is None:
            yield path, table, field
        else:
            yield from values(below, (*path, NAMED) if get_origin(field.annotation) is Mapping else path)
    if table is ModelsSettings:
        yield from values(ModelSettings, (*above, NAMED))


Kind = Literal["choice", "switch", "list", "text", "value"]
"""One of a few words, true or false, several texts, any text, or a number (which may be a word such as "auto" too)."""


@dataclass(frozen=True, slots=True)
class Description:
    """One setting; in the path of one that belongs to a single model or preset, NAMED stands for its name."""

    path: tuple[str, ...]
    text: str
    kind: Kind
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key as it is written, `models.NAME.context` for one of a single model."""
        return ".".join("NAME" if part == NAMED else part for part in self.path)


@cache
def descriptions() -> Mapping[tuple[str, ...], Description]:
    """Every setting that holds a value, in the order of the schema."""
    import ast
    import inspect

    body: list[ast.stmt] = []
    with suppress(OSError):  # there may be no source to read
        body = ast.parse(inspect.getsource(sys.modules[__name__])).body
    words: dict[tuple[str, str], str] = {}  # the text below each field, by class and field
    for table in (node for node in body if isinstance(node, ast.ClassDef)):
        for field, below in zip(table.body, table.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    words[table.name, name] = inspect.cleandoc(text)
                case _:
                    pass
    found: dict[tuple[str, ...], Description] = {}
    for path, table, field in values():
        kind, choices = kind_of(field)
        default = field.get_default(call_default_factory=True) if not field.is_required() else None
        declared = ((one.__name__, path[-1]) for one in table.__mro__)  # it may extend the one that says it
        text = next((words[one] for one in declared if one in words), "")
        found[path] = Description(path, text, kind, default, choices)
    return found


def section_words() -> Mapping[str, str]:
    """What each table of the file is about, by its name."""
    import inspect

    tables = {name: table_of(field) for name, field in Settings.model_fields.items()}
    return {name: inspect.getdoc(table) or "" for name, table in tables.items() if table is not None}


def kind_of(field: FieldInfo) -> tuple[Kind, tuple[str, ...]]:
    """What a field holds, and the words it may be."""
    annotation, inner = field.annotation, [part for part in get_args(field.annotation) if part is not type(None)]
    if get_origin(annotation) is Literal:
        return "choice", tuple(map(str, get_args(annotation)))
    if annotation is tuple or get_origin(annotation) is tuple:
        return "list", ()
    if str in inner and (named := next((part for part in inner if get_origin(part) is Literal), None)):
        return "choice", tuple(map(str, get_args(named)))  # which a plugin may add to
    bare = [get_args(part)[0] if get_origin(part) not in (None, Literal) else part for part in inner or [annotation]]
    if bare == [bool]:
        return "switch", ("true", "false")
    return ("text" if bare == [str] else "value"), ()
