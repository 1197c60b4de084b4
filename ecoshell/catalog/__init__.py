"""All known tools by unique name, the registered ones, and how they are presented to a model."""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any, Literal

from ecoshell.budget import Price, Rates
from ecoshell.errors import ToolError
from ecoshell.messages import FINISH, META_TOOLS, TOOL_CALL, TOOL_REGISTER, TOOL_SEARCH, ToolSchema
from ecoshell.tools import Tool, ToolProvider


@dataclass(frozen=True, slots=True)
class CatalogNews:
    """Changes of a catalog, by tool name."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.gone)


class Catalog:
    """Tools by name; a name that several servers share is qualified with the server name.

    Provider tools come last and change only in `follow`, so that they are constant during a turn.
    """

    def __init__(self, tools: Iterable[Tool], providers: Sequence[ToolProvider] = ()) -> None:
        self.providers = providers
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, ToolSchema] = {}
        own = [(tool, tool.schema) for tool in tools]
        shared = {name for name, count in Counter([schema.name for _, schema in own]).items() if count > 1}
        for tool, schema in own:
            name = schema.name
            if name in shared and schema.server:
                name = f"{schema.server}.{name}"
            if name in self._tools or name in META_TOOLS:
                raise ToolError(f"two tools are called {name}", fix="give one of them another name")
            self._tools[name] = tool
            self._schemas[name] = replace(schema, name=name)
        self._own = frozenset(self._tools)
        self.follow(())

    @property
    def grows(self) -> bool:
        """Whether providers may add or remove tools."""
        return bool(self.providers)

    def is_all(self, names: Iterable[str]) -> bool:
        """Return whether these are all tools and no provider can add any."""
        return not self.grows and set(names).issuperset(self._tools)

    def follow(self, kept: Container[str]) -> CatalogNews:
        """Update the provider tools, except those in `kept`, whose schemas a model has seen.

        New tools with a name that is already used are ignored.
        """
        now = {
            tool.schema.name: tool
            for provider in reversed(self.providers)  # The first provider of a name wins.
            for tool in provider.tools
            if tool.schema.name not in self._own | META_TOOLS
        }
        gone = [name for name in self._tools if name not in self._own and name not in now and name not in kept]
        for name in gone:
            del self._tools[name], self._schemas[name]
        changed: list[str] = []
        added = [tool.schema.name for provider in self.providers for tool in provider.tools]
        added = [name for name in dict.fromkeys(added) if name in now and name not in self._tools]
        for name, tool in now.items():
            if name in self._tools and name not in kept and self._tools[name] is not tool:
                self._tools[name], self._schemas[name] = tool, tool.schema
                changed.append(name)
        for name in added:
            self._tools[name], self._schemas[name] = now[name], now[name].schema
        return CatalogNews(tuple(added), tuple(changed), tuple(gone))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(self._schemas.values())

    @property
    def prices(self) -> dict[str, int]:
        """Price of one use in nano-dollars, by tool."""
        return {name: tool.price_nano for name, tool in self._tools.items()}

    @property
    def servers(self) -> dict[str, str]:
        """The server of each MCP tool."""
        return {name: schema.server for name, schema in self._schemas.items() if schema.server}

    def tool(self, name: str) -> Tool:
        """Return a tool; raises KeyError if it is unknown."""
        return self._tools[name]

    def schema(self, name: str) -> ToolSchema:
        """Return a tool's schema; raises KeyError if it is unknown."""
        return self._schemas[name]

    def schemas_of(self, names: Iterable[str]) -> tuple[ToolSchema, ...]:
        """Return the schemas of the known names, in this order."""
        schemas = self._schemas
        return tuple([schemas[name] for name in names if name in schemas])

    def closest(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """Return the most similar names, best first."""
        lowered = {tool_name.lower(): tool_name for tool_name in self._tools}
        inside = [lowered[low] for low in lowered if name and (name.lower() in low or low in name.lower())]
        alike = [lowered[low] for low in difflib.get_close_matches(name.lower(), lowered, n=limit, cutoff=0.5)]
        return tuple(dict.fromkeys([*alike, *inside]))[:limit]


By = Literal["agent", "first_call", "user", "upfront"]


@dataclass(frozen=True, slots=True)
class Skill:
    """A registered tool; `tokens` is the size of its schema in the context."""

    name: str
    tokens: int
    by: By


@dataclass(frozen=True, slots=True)
class SkillLibrary:
    """Registered tools by name, in the order of registration."""

    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])

    def __contains__(self, name: object) -> bool:
        return name in self.skills

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.skills)

    @property
    def tokens(self) -> int:
        return sum(skill.tokens for skill in self.skills.values())

    def including(self, skills: Iterable[Skill]) -> "SkillLibrary":
        """Return the library with these added; existing entries are unchanged."""
        extended = dict(self.skills)
        for skill in skills:
            extended.setdefault(skill.name, skill)
        return SkillLibrary(extended)

    def without(self, names: Container[str]) -> "SkillLibrary":
        """Return the library without these names."""
        return SkillLibrary({name: skill for name, skill in self.skills.items() if name not in names})


PresentationName = Literal["grow", "deferred", "stable", "direct", "plain", "text"]
CORE = ("list_files", "read_file", "search_text", "edit_file", "write_file", "run_command")
"""The core set: tools that a model with native tool calls always has, in the order of its tool array (SPEC §1)."""

_MAX_WORDS = 8
_MAX_CHARACTERS = 60
_SENTENCE_END = re.compile(r"[.;:!?](?:\s|$)|[。；：！？\n]")


def _meta_tool(name: str, description: str, types: Mapping[str, str], *, required: bool = True) -> ToolSchema:
    """Return a meta-tool's schema; `types` maps arguments to JSON types."""
    parameters: dict[str, Any] = {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}
    if required:
        parameters["required"] = list(types)
    return ToolSchema(name, description, parameters)


REGISTER_SCHEMA = _meta_tool(
    TOOL_REGISTER, "Register a tool by its name, so that it can be called.", {"tool_name": "string"}
)
CALL_SCHEMA = _meta_tool(
    TOOL_CALL, "Call a registered tool as its document says.", {"name": "string", "arguments": "object"}
)
SEARCH_SCHEMA = _meta_tool(TOOL_SEARCH, "Find names of further tools to register.", {"query": "string"})
FINISH_SCHEMA = _meta_tool(
    FINISH,
    "End with the answer, or give up and say why in it.",
    {"answer": "string", "give_up": "boolean"},
    required=False,
)


@dataclass(frozen=True, slots=True)
class Presentation:
    """A way to present tools to a model."""

    name: PresentationName
    as_text: bool
    """Whether documents are text in the conversation; else the array holds them."""
    carried: bool = False
    """Whether tools are called through `tool_call`."""
    registers: bool = True
    """Whether there are tools known by name alone."""
    whole: bool = False
    """Whether everything is registered from the start: no names, no registering."""
    deferred: bool = False
    """Whether the provider's own search loads tools that are known by name."""
    declared: frozenset[str] = frozenset()
    """Names of the tools whose documents stand in an array that never changes."""

    def array(
        self,
        registered: Sequence[ToolSchema],
        *,
        deferrable: Sequence[ToolSchema] = (),
        large: bool = False,
        finish: bool = True,
    ) -> tuple[ToolSchema, ...]:
        """The tool array of a request; `large` and `finish` say that `tool_search` and `finish` are offered.

        `deferrable` are all tools of a deferring presentation. They keep their places whether they are loaded or not.
        """
        declared = [replace(schema, brief=True) for schema in registered if schema.name in self.declared]
        meta = (
            (REGISTER_SCHEMA, self.registers),
            (CALL_SCHEMA, self.carried),
            (FINISH_SCHEMA, finish),
            (SEARCH_SCHEMA, large and not self.whole and not self.deferred),
        )
        offered = [schema for schema, is_offered in meta if is_offered]
        if self.as_text:
            return (*declared, *offered)
        if self.whole:
            return (*declared, *offered, *registered)
        if self.deferred and deferrable:
            known = {schema.name for schema in registered}
            registered = [one if one.name in known else replace(one, deferred=True) for one in deferrable]
        # Schemas common to all sessions come first, so that sessions share the prompt cache.
        core = sorted((tool for tool in registered if tool.name in CORE), key=lambda tool: CORE.index(tool.name))
        return (*declared, *core, *offered, *(tool for tool in registered if tool.name not in CORE))

    def registration_result(self, schema: ToolSchema) -> str:
        """Return the result of registering this tool."""
        return schema.as_text() if self.as_text else "Registered."

    def shown(self, schema: ToolSchema) -> str:
        """Return the schema as it appears in the prompt, for counting its tokens."""
        if schema.name in self.declared:
            return replace(schema, brief=True).entry
        return schema.as_text() if self.as_text else schema.entry

    def opening(
        self,
        names: Sequence[str],
        upfront: Sequence[ToolSchema] = (),
        *,
        large: bool = False,
        about: Mapping[str, str] | None = None,
        servers: Mapping[str, str] | None = None,
    ) -> str:
        """Return the text before a question: names to register, and schemas that are not in the tool array.

        `about` has short descriptions of tools, `servers` the server of MCP tools.
        """
        upfront = [schema for schema in upfront if schema.name not in self.declared]
        parts: list[str] = []
        if not self.whole:  # the names (EcoAct, "Tool name as informer")
            known, about = {*self.declared, *(schema.name for schema in upfront)}, about or {}
            lines: list[str] = []
            for server, own in by_server([name for name in names if name not in known], servers or {}).items():
                full = (f"{server}.{name}" if server else name for name in own)
                pairs = zip(own, full, strict=True)
                told = ", ".join(f"{name} ({about[one]})" if about.get(one) else name for name, one in pairs)
                lines.append(f"{server}: {told}" if server else told)
            head = "Tools to register (tool_search finds more)" if large else "Tools to register"
            if self.deferred:
                head = "More tools, to be loaded with the tool search"
            if lines[0]:
                parts.append(f"{head}: {lines[0]}")
            if len(lines) > 1:
                parts.append("Of servers, as server.tool:" if lines[0] else f"{head}, as server.tool:")
                parts += lines[1:]
        if self.as_text and upfront:
            schemas = "\n".join(schema.as_text() for schema in upfront)
            parts.append(f"{'Tools' if self.whole else 'Registered already'}:\n{schemas}")
        return "\n".join(filter(None, parts))


GROW = Presentation("grow", as_text=False)
DEFERRED = Presentation("deferred", as_text=False, registers=False, deferred=True)
STABLE = Presentation("stable", as_text=True, carried=True)
PLAIN = Presentation("plain", as_text=False, registers=False, whole=True)
TEXT = Presentation("text", as_text=True, carried=True, registers=False, whole=True)
PRESENTATIONS: Mapping[str, Presentation] = {one.name: one for one in (GROW, DEFERRED, STABLE, PLAIN, TEXT)}


def presentation_of(name: str, declared: Iterable[str], *, registers: bool) -> Presentation | None:
    """Return a presentation for a session with these `declared` tools; `registers` if further tools may exist."""
    if name != "direct":
        return PRESENTATIONS.get(name)
    return Presentation("direct", as_text=True, registers=registers, declared=frozenset(declared))


def few_words(schema: ToolSchema) -> str:
    """Return the beginning of a tool's description, at most eight words."""
    sentence = _SENTENCE_END.split(schema.description.strip(), maxsplit=1)[0]
    words = " ".join(sentence.split()[:_MAX_WORDS])
    return words[:_MAX_CHARACTERS].rstrip(" ,(-")


def by_server(names: Iterable[str], servers: Mapping[str, str]) -> dict[str, list[str]]:
    """Group names by server, without the prefix; under "" names without a server or alone on theirs."""
    groups: dict[str, list[str]] = {"": []}
    for name in names:
        server = servers.get(name, "")
        groups.setdefault(server if name.startswith(f"{server}.") else "", []).append(name)
    for server in [server for server, own in groups.items() if server and len(own) == 1]:
        groups[""] += groups.pop(server)
    return {server: [name[len(server) + 1 :] if server else name for name in own] for server, own in groups.items()}


def listed_parts(names: Iterable[str], servers: Mapping[str, str]) -> Iterator[str]:
    """Yield the parts of a listing of names, for counting their tokens."""
    for server, own in by_server(names, servers).items():
        if server:
            yield f"\n{server}: "
        yield from (f", {name}" for name in own)


# -- what a question starts with (SPEC §1)

TOKEN_WEIGHTS = Rates(Decimal(1), Decimal("0.1"), Decimal(1), Decimal(4), Decimal(4))
"""Rates for a model that is free or of unknown price: a token read anew counts 1, one found in the cache a tenth of it,
and one written 4, which is what the median model of litellm's price file asks."""

MARGIN = Decimal("0.05")
"""Leaving tools as names must promise to save this share: its cost is less certain than that of showing everything."""
CLEAR_MARGIN = Decimal("0.1")
"""The same where the documents take little of the context anyway."""
LITTLE = 1_200
"""Tokens of documents that are little where the context is unknown; else they are `LITTLE_SHARE` of it."""
LITTLE_SHARE = Decimal("0.04")
FORGOTTEN = Decimal("0.03")
"""How often a task fails for a tool it needs and sees by name alone, so that it has to be done again, where nothing is
known of the model: a registration fails, is forgotten, or another tool is taken in its place."""
RISK = Decimal("1.3")
SAFE_MARGIN = Decimal("0.03")
"""A plan that leaves names must save that much also where it has bad luck, so many standard deviations of registrations
more than are expected: it may not lose single tasks for the sake of the mean. Chosen with the 36 successful runs of
LiveMCPBench in pools of 10 and 20 in view."""
LIKELY = Decimal("0.3")
"""Chance of use from which a model with native calls has a tool's schema loaded beside the core set."""
SMALL_ARRAY = 2_000
"""Tokens of schemas that a model with native calls has loaded whole."""
CONSTANT_ARRAY = 900
"""Tokens of schemas that are the same in every session, so that providers cache the beginning of the prompt: with the
system prompt they pass the usual minimum of 1,024 tokens."""
WORDS_HELP = Decimal("0.5")
"""The part of what is forgotten that a few words beside each name are taken to prevent; nobody has measured it."""

REGISTRATION_OUTPUT = 20
"""Tokens of a call of `tool_register`."""
REGISTRATION_EXCHANGE = 32
"""Tokens that call and its acknowledgment leave in the history, besides the document."""
REGISTERING_PROMPT = 30
"""Tokens by which a system prompt tells how tools are registered."""
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """A task as it is expected to go, in tokens. The defaults are round means of 48 recorded LiveMCPBench runs."""

    steps: int = 6
    """Calls of tools, registrations not counted."""
    output: int = 200
    """Of a step: thought and call."""
    observation: int = 450
    answer: int = 500
    base: int = 300
    """System prompt, question and earlier turns."""
    registered_after: Decimal = Decimal("0.3")
    """The share of the steps that are done, on average, when a tool is registered."""

    @property
    def calls(self) -> int:
        """Model calls, the answer's included and registrations not."""
        return self.steps + 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool that could be registered: the tokens of its document and of its name, and its chance of use (0 to 1)."""

    name: str
    tokens: int
    """Of its document in a tool array."""
    name_tokens: int
    chance: Decimal
    text_tokens: int | None = None
    """Of its document as text, where that differs."""
    words_tokens: int = 0
    """Of the few words of what it does that may go with the name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user has settled, and what the catalog allows."""

    registration: Literal["auto", "names", "all", "all_text"] = "auto"
    presentation: Literal["auto", "grow", "deferred", "stable"] = "auto"
    whole: bool = True
    """Whether the candidates are all tools; if they are a shortlist, registering everything is no choice."""
    room: int | None = None
    """Tokens that documents may take up front, if the context or a cap sets a limit."""
    little: int = LITTLE
    """Tokens of documents up to which a set takes little of the context."""
    forgotten: Decimal = FORGOTTEN
    """How often this model fails a task for a tool it needs and sees by name alone."""
    native: bool = False
    """Whether everything, where that is shown, stands in the tool array: the form a weak model was trained on."""
    array_only: bool = False
    """Whether tools are never shown as text: the model has native tool calls."""
    core: frozenset[str] = frozenset()
    """Tools that are registered from the start, whatever else is."""
    grows: bool = False
    """Whether tools may come and go while the session lasts, so that there must be a way to register them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to begin: a presentation, the tools registered up front, and what the task is expected to cost.

    `dearest` is what it may come to with bad luck (`RISK`); `described` says that names come with a few words.
    """

    presentation: Presentation
    upfront: tuple[str, ...]
    """Names whose documents are there from the start, in catalog order."""
    cost: Decimal
    dearest: Decimal = Decimal(0)
    described: bool = False
    forecast: "Forecast | None" = field(default=None, compare=False, repr=False)
    """By which names were decided on; None where none was."""
    waiting: Decimal = Decimal(0)
    """What a needed tool is expected to cost that is left a name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan that was chosen, and why."""

    plan: Plan
    summary: str

    def why(self, name: str) -> str:
        """Why this tool's document is there from the start, or is not."""
        forecast = self.plan.forecast
        one = next((one for one in forecast.candidates if one.name == name), None) if forecast else None
        if forecast is None or one is None:
            return self.summary
        chance = f"{name}, needed with a chance of {one.chance:.0%}:"
        if not self.plan.waiting:
            return f"{chance} {'loaded' if name in self.plan.upfront else 'known by name'}. {self.summary}"
        # the document by itself pays where waiting is expected to cost more than carrying is expected to waste
        pays = one.chance * self.plan.waiting > (1 - one.chance) * forecast.carry(one.tokens, forecast.work.calls)
        if name not in self.plan.upfront:
            if pays:
                return f"{chance} name only, though its document would pay: names were asked for, or there is no room."
            return f"{chance} name only; its {one.tokens} tokens would cost more than a registration step."
        if pays:
            return f"{chance} document up front; going without would cost more than its {one.tokens} tokens."
        return f"{chance} document up front: it saves a registration that one task in a few would pay for dearly."


def candidates_of(
    schemas: Iterable[ToolSchema], chances: Mapping[str, float], sizes: Callable[[Iterable[str]], Sequence[int]]
) -> tuple[Candidate, ...]:
    """The documents as candidates; `sizes` counts the tokens of texts."""
    schemas = tuple(schemas)
    told = [text for one in schemas for text in (one.entry, f", {one.name}", one.as_text(), f" ({few_words(one)})")]
    counted = iter(sizes(told))
    found: list[Candidate] = []
    for one, entry, name, text, words in zip(schemas, *[counted] * 4, strict=True):
        likely = Decimal(str(round(chances.get(one.name, 0.0), 4)))
        found.append(Candidate(one.name, entry, name, likely, text, words))
    return tuple(found)


def under(presentation: Presentation, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates with `tokens` as this presentation shows their documents."""
    if presentation not in (STABLE, TEXT):
        return candidates
    return [one if one.text_tokens is None else replace(one, tokens=one.text_tokens) for one in candidates]


def rates_of(price: Price | None, prompt_tokens: int) -> Rates:
    """The rates to decide by: the price's own, or weights of tokens where there is no price to compare."""
    rates = TOKEN_WEIGHTS if price is None else price.rates_for(prompt_tokens)
    return rates if rates.dearest_input or rates.dearest_output else TOKEN_WEIGHTS


def decide(candidates: Sequence[Candidate], rates: Rates, work: Workload, policy: Policy = Policy()) -> Decision:
    """What the question starts with: the cheapest plan by expectation, the tasks that fail for it counted (SPEC §1).

    Documents up front are always those of the likeliest tools, however long they are. A plan that leaves names must
    save a margin against showing everything, and may not be dearer than that with bad luck either. Costs are in
    millionths of a dollar, as rates are in dollars per million tokens.
    """
    whole = _whole(policy, candidates)
    everything = Forecast(rates, work, under(whole, candidates)).everything(whole)
    if policy.registration in ("all", "all_text"):
        return Decision(everything, "Every tool is registered, as asked.")
    automatic = (GROW,) if policy.array_only else (GROW, STABLE)
    shown = {"grow": (GROW,), "deferred": (DEFERRED,), "stable": (STABLE,), "auto": automatic}[policy.presentation]
    if policy.core and policy.registration == "auto" and policy.presentation != "stable":
        return _core_and_likely(candidates, rates, work, policy, everything)
    needed = sum([one.tokens for one in under(whole, candidates)])
    possible = policy.whole and (policy.room is None or needed <= policy.room)
    again = everything.cost * policy.forgotten
    plans: list[Plan] = []
    for way in shown:
        plans += Forecast(rates, work, under(way, candidates)).by_name(way, policy, again)
    best = min(plans, key=attrgetter("cost"))
    if policy.registration == "names":
        return Decision(best, f"Names only, as asked; presentation {best.presentation.name}.")
    if not possible:
        return Decision(best, _summary(best, everything, possible))
    little = sum([one.tokens for one in under(TEXT, candidates)]) <= policy.little
    most = everything.cost * (1 - (CLEAR_MARGIN if little else MARGIN))
    safe = [
        plan
        for plan in plans
        if len(plan.upfront) < len(candidates)
        and plan.cost < most
        and plan.dearest <= everything.cost * (1 - SAFE_MARGIN)
    ]
    best = min(safe, key=attrgetter("cost"), default=everything)
    return Decision(best, _summary(best, everything, possible))


def _core_and_likely(
    candidates: Sequence[Candidate], rates: Rates, work: Workload, policy: Policy, everything: Plan
) -> Decision:
    """The core set, some constant tools and the likely ones that have room are loaded; the others are known by name.

    A small catalog is loaded whole. Both that and the constant tools keep the beginning of the prompt long enough for
    prompt caches: below a provider's minimum, fewer schemas cost more than they save.
    """
    is_first = any(tool.name in policy.core for tool in candidates)
    total = sum([tool.tokens for tool in candidates])
    fits = total <= SMALL_ARRAY and (policy.room is None or total <= policy.room)
    is_small = is_first and policy.whole and fits and policy.presentation != "grow"
    if not candidates or (is_small and not policy.grows):
        return Decision(everything, "Every tool is loaded: names would save too little.")
    core = [tool for tool in candidates if tool.name in policy.core]
    constant = 0 if not is_first else total if is_small else CONSTANT_ARRAY - sum([tool.tokens for tool in core])
    room, loaded, has_room = policy.room, {tool.name for tool in core}, True
    for tool in candidates:
        if tool.name in loaded or (constant <= 0 and tool.chance < LIKELY):
            continue
        if room is not None and tool.tokens > room:
            has_room = False
        else:
            constant -= tool.tokens
            room = None if room is None else room - tool.tokens
            loaded.add(tool.name)
    presentation = DEFERRED if policy.presentation == "deferred" else GROW
    chosen = [tool for tool in candidates if tool.name in loaded]
    cost = Forecast(rates, work, chosen).everything(presentation).cost
    return Decision(
        Plan(
            presentation,
            tuple([tool.name for tool in chosen]),
            cost,
            dearest=cost,
            forecast=Forecast(rates, work, candidates),
        ),
        f"{len(loaded)} tools are loaded: the core set and likely ones. "
        f"The others are known by name{'' if has_room else ', as there is no room for more'}.",
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """Expected costs of one task under these rates."""

    rates: Rates
    work: Workload
    candidates: Sequence[Candidate]

    def carry(self, tokens: Decimal | int, calls: Decimal | int) -> Decimal:
        """The price of tokens in the prompts of so many calls: written to the cache once, then read from it."""
        return tokens * (self.rates.cache_write + self.rates.cached_input * max(calls - 1, Decimal(0)))

    def everything(self, presentation: Presentation) -> Plan:
        """The plan that registers all candidates up front."""
        schemas = sum([one.tokens for one in self.candidates])
        cost = self._common() + self.carry(_meta_tokens(presentation) + schemas, self.work.calls)
        return Plan(presentation, tuple([one.name for one in self.candidates]), cost, dearest=cost)

    def by_name(self, presentation: Presentation, policy: Policy, again: Decimal) -> list[Plan]:
        """Plans that show names, each with the documents of some more of the likeliest tools up front.

        Tools of the same chance go together, unless only some of them have room. `again` is what a needed tool that
        is left a name costs on average in tasks that fail for it.
        """
        every, calls = self.candidates, self.work.calls
        meta = self._common() + self.carry(_meta_tokens(presentation), calls)
        hidden, upfront, chosen = _Sums().plus(every), 0, set[str]()
        usual = self._registration_step(presentation, hidden, upfront) + again
        core = [one for one in every if one.name in policy.core and policy.registration != "names"]
        groups: list[list[Candidate]] = [core]
        room = policy.room
        others = [one for one in every if one not in core]
        for one in sorted(others, key=attrgetter("chance"), reverse=True) if policy.registration != "names" else ():
            if room is not None and one.tokens > room:
                continue
            room = None if room is None else room - one.tokens
            if len(groups) > 1 and groups[-1][0].chance == one.chance:
                groups[-1].append(one)
            else:
                groups.append([one])
        plans: list[Plan] = []
        for added in groups:
            for one in added:
                chosen.add(one.name)
                upfront += one.tokens
            hidden = hidden.plus(added, sign=-1)
            step = self._registration_step(presentation, hidden, upfront)
            fixed = meta + self.carry(upfront + hidden.name_tokens, calls)
            late = self.carry(hidden.likely_tokens, calls)
            cost = fixed + late + hidden.needed * (step + again)
            unlucky = 1 + RISK * max(hidden.variance, Decimal(0)).sqrt() / hidden.needed if hidden.needed > 0 else 1
            dearest = fixed + unlucky * (late + hidden.needed * step)
            words, helped = self.carry(hidden.words_tokens, calls), WORDS_HELP * hidden.needed * again
            described = policy.registration != "names" and 0 < hidden.words_tokens <= policy.little and words < helped
            if described:
                cost, dearest = cost + words, dearest + words
            names = tuple(one.name for one in every if one.name in chosen)
            plans.append(Plan(presentation, names, cost, dearest, described, self, usual))
        return plans

    def _registration_step(self, presentation: Presentation, hidden: "_Sums", upfront: int) -> Decimal:
        """The price of one registration besides the document: the prompt once more, the call, and what stays of it.

        `upfront` is the tokens of documents that are there. An array that grows does so ahead of the messages, so that
        the next call does not find them in the cache.
        """
        work, rates = self.work, self.rates
        history = work.registered_after * work.steps * (work.output + work.observation)
        messages = work.base + hidden.name_tokens + history
        prompt = _meta_tokens(presentation) + messages + hidden.likely_tokens / 2 + upfront
        left = work.calls * (1 - work.registered_after)
        written = rates.output * REGISTRATION_OUTPUT + self.carry(REGISTRATION_EXCHANGE, left)
        missed = (rates.cache_write - rates.cached_input) * messages if presentation is GROW else Decimal(0)
        return rates.cached_input * prompt + written + missed

    def _common(self) -> Decimal:
        """What the task costs under every plan."""
        work = self.work
        exchanges = work.steps * self.carry(work.output + work.observation, Decimal(work.calls) / 2)
        written = self.rates.output * (work.steps * work.output + work.answer)
        return self.carry(work.base, work.calls) + exchanges + written


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over tools: how many of them are expected to be needed, the variance of that, and tokens.

    `likely_tokens` are those of documents, each counted by its chance.
    """

    needed: Decimal = Decimal(0)
    variance: Decimal = Decimal(0)
    likely_tokens: Decimal = Decimal(0)
    name_tokens: int = 0
    words_tokens: int = 0

    def plus(self, candidates: Iterable[Candidate], sign: int = 1) -> "_Sums":
        """With these tools, too; with a `sign` of −1, without them."""
        needed, variance, likely = self.needed, self.variance, self.likely_tokens
        names, words = self.name_tokens, self.words_tokens
        for one in candidates:
            needed += sign * one.chance
            variance += sign * one.chance * (1 - one.chance)
            likely += sign * one.chance * one.tokens
            names += sign * one.name_tokens
            words += sign * one.words_tokens
        return _Sums(needed, variance, likely, names, words)


def _whole(policy: Policy, candidates: Sequence[Candidate]) -> Presentation:
    """How everything is shown where it is.

    Text takes about two thirds of the tokens; its calls go through `tool_call`, which is left out of account: on
    recorded runs the array was never more than 1 % cheaper, and text up to 10 %.
    """
    if policy.registration == "all_text":
        return TEXT
    if policy.grows and policy.registration != "all":
        if policy.presentation == "deferred":
            return DEFERRED
        return GROW if policy.presentation == "grow" or policy.array_only else STABLE
    if policy.presentation != "auto":
        return TEXT if policy.presentation == "stable" else PLAIN
    if policy.registration == "all":
        return PLAIN
    if policy.array_only:
        return PLAIN
    in_array = policy.room is None or sum(candidate.tokens for candidate in candidates) <= policy.room
    return PLAIN if policy.native and in_array else TEXT


@cache
def _meta_tokens(presentation: Presentation) -> int:
    """About how many tokens the presentation's own tools take, and what is told of them; `finish` is no part of it."""
    array = sum(len(schema.entry) for schema in presentation.array((), finish=False)) // _CHARACTERS_PER_TOKEN
    return array + (REGISTERING_PROMPT if presentation.registers else 0)


def _summary(best: Plan, everything: Plan, possible: bool) -> str:
    upfront = f"{len(best.upfront)} schemas up front" if best.upfront else "no schema up front"
    if not possible:
        return f"Names by {best.presentation.name}, {upfront}: there is no room to register every tool."
    if best is everything:
        form = " as text" if best.presentation in (TEXT, STABLE) else ""
        return f"Every tool is registered{form}: registering by name is not expected to save enough."
    saving = 1 - best.cost / everything.cost
    return (
        f"Names by {best.presentation.name}, {upfront}: expected to save {saving:.0%} against registering every tool."
    )
