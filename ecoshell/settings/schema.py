"""The declaration of every setting: its type, its default, and its description in the docstring below it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from ecoshell.options import (
    RETRY_SECONDS,
    ApprovalMode,
    Effort,
    HookPoint,
    ModeName,
    Presentation,
    Registration,
)
from ecoshell.settings.convert import Checked, OtherKeys
from ecoshell.settings.value_types import (
    Address,
    AmountText,
    AutoOrLayers,
    AutoOrTemperature,
    AutoOrWhole,
    ContextTokens,
    Dollars,
    DollarsOrOff,
    EnvironmentText,
    Fraction,
    LedgerAddress,
    Name,
    OffOrContextShare,
    PositiveFraction,
    PositiveWhole,
    Rate,
    SecondsUpToDay,
    Text,
    TimeLimit,
)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Names of servers and hooks. Tool names begin with the server's name, and providers restrict them."""


def _name_check(what: str) -> Checked:
    """Check the names of a table, which become parts of other names."""

    def check(tables: Mapping[str, Any]) -> Mapping[str, Any]:
        invalid = next((name for name in tables if not _NAME.fullmatch(name)), None)
        if invalid is not None:
            raise ValueError(
                f"cannot have a {what} named {invalid!r}; use letters, digits, - and _, at most 40"
            )
        return tables

    return Checked(check)


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """Caps in dollars, tokens or working time, and when to ask before spending."""

    turn: AmountText | None = None
    """Cap of one turn: dollars, such as 0.50, tokens, such as 20000tok, or working time, such as 2min."""
    session: AmountText | None = None
    """Cap of a session; `--budget` overrides it for one run, `/budget` for the open session."""
    day: AmountText | None = None
    """Cap of all sessions together in a day."""
    month: AmountText | None = None
    """Cap of all sessions together in a month."""
    ask_above: DollarsOrOff | None = None
    """Ask before a step that may cost more than this many dollars; `off` (the default) never asks."""
    ledger: LedgerAddress | None = None
    """PostgreSQL ledger whose caps a team shares, such as `postgresql://ann@db.example.org/ledger`. The password is
    read from PGPASSWORD, ~/.pgpass or the keyring. Also `ECOSHELL_LEDGER`."""
    project: Text | None = None
    """Project of the calls in the team ledger; the default is the name of the workspace folder."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """How the agent works: registration, mode, strategy and limits."""

    registration: Registration = "auto"
    """What the model sees of tools at first: names, all schemas (all_text: as shorter text), or whichever is cheaper,
    with the schemas of the core set (auto)."""
    presentation: Presentation = "auto"
    """How registered tools reach the model: the tool array grows, it stays as the provider cached it (stable), or auto,
    which uses the provider's own tool search if it has one."""
    mode: ModeName = "single"
    """One model for everything, or three roles (umi: planner, caller, summarizer)."""
    strategy: Annotated[Literal["react", "dfsdt", "tot", "graph"] | str, Name] = "react"
    """The order of steps: one path (react), a search that backtracks (dfsdt, tot), parallel tool calls (graph), or a
    plugin's strategy."""
    max_steps: AutoOrWhole = "auto"
    """Steps of a turn before it must answer; `auto` is 24 for small local models, none for a capable model
    under a cap, and 200 otherwise."""
    max_output_tokens: AutoOrWhole = "auto"
    """Output tokens of one reply, reasoning included; `auto` is the model's own maximum, less as a cap runs out."""
    answer_tokens: PositiveWhole = 512
    """Tokens of the final answer, whose price is reserved before the first step."""
    temperature: AutoOrTemperature = "auto"
    """Sampling temperature of steps and answers, from 0 to 2; `auto` is what the model's file, its family or its
    provider recommends. Rankings, judgments and summaries always use 0."""
    effort: Effort = "auto"
    """How much models reason before they answer; `auto` leaves it to the provider."""
    context: Literal["auto", "off"] = "auto"
    """Whether the prompt describes the environment: date, system, and the workspace's path, files and git state."""
    instructions: Literal["ask", "trust", "off"] = "ask"
    """A project's `AGENTS.md`: ask before trusting it, trust it, or ignore it together with your own (off)."""
    task_model: Text | None = None
    """Model of subagents; the default is the cheapest of the session's models."""
    tasks_at_once: PositiveWhole = 4
    """Most subagents that one agent runs at the same time."""
    compact_model: Text | None = None
    """Model that writes the summary of /compact; it reads the whole conversation. The default is the session's."""
    compact_at: OffOrContextShare = 0.8
    """Share of a model's context at which old results are trimmed and earlier steps are summarized, or `off`."""
    advisor: Text | None = None
    """Stronger model that the session's model may ask for advice (tool ask_advisor); `/role advisor` sets it."""
    advisor_share: PositiveFraction = 0.3
    """Share of what the caps leave that advice may cost in a turn."""
    quote: Literal["ask", "show", "off"] = "ask"
    """Quote price and time before a tool graph or several subagents start: ask if they may take much of what is left
    under a cap (ask), only show it (show), or neither (off)."""
    quote_share: PositiveFraction = 0.25
    """Share of what a cap leaves that the upper end of a quote may take without asking."""


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The plan: which uses of tools the budget allows, decided before tools run."""

    mode: Literal["off", "btp", "prompt", "btp+prompt"] = "btp"
    """Plan the uses of tools (btp), write costs and budget into the prompt (prompt), or both."""
    threshold: Fraction = 0.15
    """Lowest value at which a tool with a history is worth a use; τ in the paper."""
    strict: bool = False
    """Refuse every unplanned call under a cap, as in the paper. Otherwise a call is refused only if the answer or a
    better, cheaper use would become unaffordable, or if the tool's recent results did not help."""
    earned_uses: bool = True
    """Allow a tool one more use in the turn after a use that helped, while the budget allows it."""
    budget_line: bool = True
    """Tell a capable model under a cap the remaining budget and the cost of a step, in one line after each step."""
    judge: Annotated[Literal["rules", "classifier", "model"] | str, Name] = "rules"
    """What decides whether a result helped: rules, the classifier of `ecoshell experience train`, the model (one paid
    call per result), or a plugin's judge."""
    time_price: DollarsOrOff = "off"
    """Dollars per hour of waiting, added to the cost of each tool."""
    resource_price: DollarsOrOff = "off"
    """Dollars per OpenCATP price unit (time and memory measured by `ecoshell profile`), added to the cost of each
    profiled tool."""


@dataclass(frozen=True, kw_only=True)
class GraphSettings:
    """How finished tool graphs are scored."""

    alpha: Fraction = 0.5
    """Weight of performance against cost in the score; α in the paper."""
    max_cost: Dollars = "0.05"
    """Highest cost of a tool graph in dollars if no cap is lower; C_max in the paper."""
    checker: Text | None = None
    """Command that reads the answer from standard input and exits with 0 if it is correct."""


@dataclass(frozen=True, kw_only=True)
class ExperienceSettings:
    """The record of each use of a tool; it stays on this machine."""

    record: bool = True
    """Record uses of tools."""


@dataclass(frozen=True, kw_only=True)
class RegistrationSettings:
    """Limits of the list of tool names."""

    names_share: PositiveFraction = 0.1
    """Share of the context that tool names may take before only a shortlist is shown."""


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """Models on this machine."""

    n_gpu_layers: AutoOrLayers = "auto"
    """Layers on the GPU; -1 is all of them."""
    threads: AutoOrWhole = "auto"
    """Processor threads of a local model."""
    context: ContextTokens = 8192
    """Context of a local model in tokens."""
    ask_servers: bool = True
    """List the models of Ollama, LM Studio, llama.cpp and vLLM servers on this machine."""


@dataclass(frozen=True, kw_only=True)
class RemoteSettings:
    """Remote models."""

    host_idle_seconds: SecondsUpToDay = 600
    """Seconds without a request after which the model host ends; 0 disables it, and each command loads litellm."""


@dataclass(frozen=True, kw_only=True)
class ApprovalSettings:
    """Rules `tool`, `tool:pattern` or `effect:pattern`, such as `run_command:git status*` or `read:secrets/*`; deny
    wins over ask, ask over allow."""

    mode: ApprovalMode = "ask"
    """Ask before calls that do more than read (ask), run only tools that read and end with a plan (plan), or accept
    writes inside the workspace (edits). Shift+Tab changes it in the chat."""
    allow: tuple[Text, ...] = ()
    """Calls that run without approval."""
    deny: tuple[Text, ...] = ()
    """Calls that never run."""
    ask: tuple[Text, ...] = ()
    """Calls that need approval even if they only read."""


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """The sandbox of run_command and run_python: they write the workspace and a temporary folder, and read no
    secrets."""

    mode: Literal["auto", "off", "strict"] = "auto"
    """Use the sandbox where the machine has one (auto), never, or refuse commands without one (strict)."""
    auto_accept: bool = False
    """Run sandboxed commands without approval; deny and ask rules still apply."""
    network: tuple[Text, ...] = ()
    """Commands that may use the network, such as `pip install *`; others ask after they failed without it."""
    outside: tuple[Text, ...] = ()
    """Commands that run outside the sandbox, such as `docker *`."""


@dataclass(frozen=True, kw_only=True)
class ToolsSettings:
    """Limits and prices of tools."""

    allow_private_addresses: bool = False
    """Let fetch_url reach this machine and its local network."""
    command_seconds: TimeLimit = 120
    """Time limit of run_command and run_python."""
    prices: Mapping[str, Dollars] = field(default_factory=dict[str, Any])
    """Dollars per use by tool name, for tools that call a paid service."""


@dataclass(frozen=True, kw_only=True)
class PluginsSettings:
    """Which plugins are used; the table `[plugins.NAME]` holds the settings of one plugin."""

    enabled: tuple[Text, ...] = ()
    """Packaged plugins, such as `train`, whose hooks are used in addition to `git`, `data` and `web`, which are on by
    default; commands are always available."""
    disabled: tuple[Text, ...] = ()
    """Plugins that are not loaded, such as `web`."""
    named: Annotated[Mapping[str, Mapping[str, Any]], OtherKeys()] = field(
        default_factory=dict[str, Any]
    )
    """The settings of single plugins, by name."""


@dataclass(frozen=True, kw_only=True)
class HookSettings:
    """One hook: a command that reads its event as JSON on standard input."""

    on: HookPoint
    """When it runs: `before_tool` (exit status 2 refuses the call), `after_tool`, `turn_start`, `turn_end`,
    `session_start`, `session_end`, or `cap`."""
    command: Text
    """Shell command, run in the workspace without variables that look like secrets."""
    tools: tuple[Text, ...] = ()
    """Tools before or after which it runs, with `*` for any text; empty for all."""
    seconds: TimeLimit | None = None
    """Time limit of this hook; the default is `[hooks] seconds`."""


@dataclass(frozen=True, kw_only=True)
class HooksSettings:
    """Commands that run before and after tools, turns and sessions, and at a cap."""

    seconds: TimeLimit = 10
    """Time limit of a hook that states none."""
    commands: Annotated[Mapping[str, HookSettings], _name_check("hook")] = field(
        default_factory=dict[str, HookSettings]
    )


EnvironmentTexts = Mapping[str, EnvironmentText]


@dataclass(frozen=True, kw_only=True)
class McpServerSettings:
    """One MCP server: a command to start, or an address to connect to."""

    command: Text | None = None
    """Program to start; it is used over its standard input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the command."""
    env: EnvironmentTexts = field(default_factory=dict[str, Any])
    """Environment variables in addition to the few that every server gets; `${NAME}` inserts a variable of yours."""
    cwd: Text | None = None
    """Working folder of the command; the default is the workspace."""
    url: Address | None = None
    """Address of a server reached over HTTP (streamable HTTP)."""
    headers: EnvironmentTexts = field(default_factory=dict[str, Any])
    """HTTP headers of each request, such as `Authorization`."""
    oauth: EnvironmentTexts = field(default_factory=dict[str, Any])
    """OAuth client data for servers that require it: `client_id`, `client_secret`, `method`, `scope` and
    `metadata_url`."""
    trusted: bool = False
    """Believe the annotations of its tools: a tool that declares itself read-only runs without approval."""
    sampling: bool = False
    """Let the server use the session's model without approval, within the caps."""
    enabled: bool = True
    """Offer the server's tools to the agent."""
    seconds: TimeLimit = 60
    """Time limit of one call."""

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError("must have either a command to start or a url to connect to")


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """MCP servers whose tools the agent may use."""

    servers: Annotated[Mapping[str, McpServerSettings], _name_check("server")] = field(
        default_factory=dict[str, McpServerSettings]
    )


@dataclass(frozen=True, kw_only=True)
class PriceSettings:
    """Dollars per million tokens; an unset price is that of input or output."""

    input: Rate
    """Price of the prompt."""
    output: Rate
    """Price of the reply."""
    cached_input: Rate | None = None
    """Price of the part of the prompt that the provider has cached."""
    cache_write: Rate | None = None
    """Price of the part of the prompt that the provider adds to its cache."""
    reasoning: Rate | None = None
    """Price of reasoning tokens."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Properties of one model that override the price list."""

    base_url: Address | None = None
    """Address of an OpenAI-compatible server."""
    native_tools: bool | None = None
    """Send tool schemas to the provider; false writes calls as text."""
    context: PositiveWhole | None = None
    """Context of the model in tokens."""
    vision: bool | None = None
    """Whether the model accepts images; the default is the price list's answer."""
    tool_search: bool | None = None
    """Whether the provider loads deferred tools by its own search; the default depends on name and address."""
    trusted: bool | None = None
    """Whether the model may write and run what the request does not name; the default depends on its size."""
    price: PriceSettings | None = None


@dataclass(frozen=True, kw_only=True)
class ModelsSettings:
    """Fallback models, and a table `[models."NAME"]` for each model whose properties you set."""

    fallback: tuple[Text, ...] = ()
    """Models that take over, in this order, when the model in use is unavailable; caps stay in force."""
    retry_seconds: SecondsUpToDay = RETRY_SECONDS
    """How long a call is retried after a provider refuses it (429), fails (5xx) or cannot be reached; 0 is never."""
    named: Annotated[Mapping[str, ModelSettings], OtherKeys()] = field(
        default_factory=dict[str, ModelSettings]
    )
    """The tables of single models, by name."""


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """Models of the roles of the mode umi; the default of each is the session's model."""

    planner: Text | None = None
    """Model that decides the next step."""
    caller: Text | None = None
    """Model that writes the tool calls."""
    summarizer: Text | None = None
    """Model that writes the answer."""


def _check_presets(presets: Mapping[str, RoleSettings]) -> Mapping[str, RoleSettings]:
    reserved = {*(role.name for role in fields(RoleSettings)), "-"}
    invalid = next((name for name in presets if name in reserved or not name.strip()), None)
    if invalid is not None:
        raise ValueError(f"cannot have a preset named {invalid!r}; choose another name")
    return presets


@dataclass(frozen=True, kw_only=True)
class UmiSettings(RoleSettings):
    """Models of the mode umi, set per role or by a preset."""

    preset: Text | None = None
    """Preset in use from the start; models of single roles override it."""
    presets: Annotated[Mapping[str, RoleSettings], Checked(_check_presets)] = field(
        default_factory=dict[str, RoleSettings]
    )

    def __post_init__(self) -> None:
        if self.preset is not None and self.preset not in self.presets:
            available = ", ".join(self.presets) or "none"
            raise ValueError(f"has no preset {self.preset!r}; available: {available}")


@dataclass(frozen=True, kw_only=True)
class ModesSettings:
    """Settings of the modes."""

    umi: UmiSettings = UmiSettings()


@dataclass(frozen=True, kw_only=True)
class TuiSettings:
    """Appearance of the chat."""

    theme: Text | None = None
    """A packaged theme, or the name of a TOML file in the folder `themes` next to the settings file."""
    notify: Literal["off", "bell", "desktop"] = "bell"
    """How a finished turn or a question is announced while the terminal does not have the focus."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings; each has a default."""

    model: Text = "embedded"
    """The session's model: `embedded`, `local:FILE.gguf`, or a name such as `openai/gpt-4o-mini`."""
    budget: BudgetSettings = BudgetSettings()
    agent: AgentSettings = AgentSettings()
    plan: PlanSettings = PlanSettings()
    graph: GraphSettings = GraphSettings()
    experience: ExperienceSettings = ExperienceSettings()
    registration: RegistrationSettings = RegistrationSettings()
    local: LocalSettings = LocalSettings()
    remote: RemoteSettings = RemoteSettings()
    approval: ApprovalSettings = ApprovalSettings()
    sandbox: SandboxSettings = SandboxSettings()
    tools: ToolsSettings = ToolsSettings()
    mcp: McpSettings = McpSettings()
    hooks: HooksSettings = HooksSettings()
    plugins: PluginsSettings = PluginsSettings()
    modes: ModesSettings = ModesSettings()
    models: ModelsSettings = ModelsSettings()
    tui: TuiSettings = TuiSettings()
