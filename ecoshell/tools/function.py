"""Functions as tools: the signature becomes the schema, the first line of the docstring the description.

Schemas are compact because each word costs tokens. Plain types are translated without pydantic, others with it.
"""

import inspect
import json
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ecoshell.errors import ToolError, closest_word
from ecoshell.messages import Effect, Observation, ToolSchema
from ecoshell.tools import Limits, Subject
from ecoshell.tools.measuring import forget_peak, peak_mb, record_worker
from ecoshell.tools.protection import Protection, protection
from ecoshell.tools.running import failed, in_thread, to_observation
from ecoshell.worker import in_worker

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
}
_TYPE_TEXTS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_TYPE_ERRORS = (
    "_type",
    "enum",
    "literal_error",
    "int_parsing",
    "float_parsing",
    "bool_parsing",
    "int_from_float",
)
"""Suffixes of pydantic error types for values of a wrong type."""
_OMITTED_KEYWORDS = frozenset({"title", "$defs"})
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MAX_VALUE_CHARS = 80
"""Maximum length of a wrong value in a message."""


class FunctionTool:
    """A tool made from an annotated function, plain or `async`.

    A plain function runs in a thread; long loops call `worker.checkpoint()`, so that a cancelled call ends. The
    function returns text, an Observation or a JSON value, and raises ToolError for errors that the model should see.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        effects: Iterable[Effect],
        limits: Limits | None = None,
        name: str = "",
        price_nano: int = 0,
        preview: Callable[..., str] | None = None,
    ) -> None:
        """`preview` takes the same arguments and returns the file changes of a run as a unified diff."""
        self._function = function
        self.notes: Mapping[str, str] = {}
        """Additions to the descriptions of arguments, by name."""
        self._preview = preview
        self._schema: ToolSchema | None = None
        self._arguments: Arguments | None = None
        self.limits = limits or Limits()
        self.name = name or function.__name__
        self.effects: frozenset[Effect] = frozenset(effects)
        self.price_nano = price_nano

    @property
    def schema(self) -> ToolSchema:
        """The name, description and parameters that a model sees."""
        if self._schema is None:
            description = (inspect.getdoc(self._function) or "").partition("\n")[0]
            parameters = parameters_of(self._function)
            for name, note in self.notes.items():
                about = parameters["properties"][name]["description"].rstrip(".")
                parameters["properties"][name]["description"] = f"{about}; {note}."
            self._schema = ToolSchema(self.name, description, parameters)
        return self._schema

    @cached_property
    def subjects(self) -> Mapping[str, Subject]:
        """The arguments with a Subject in their `Annotated`."""
        hints = get_type_hints(self._function, include_extras=True)
        subjects = {name: _subject(hint) for name, hint in hints.items() if name != "return"}
        return {name: subject for name, subject in subjects.items() if subject is not None}

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """Return the file changes of a run; empty if unknown or if the run would fail."""
        if self._preview is None:
            return ""
        try:
            return self._preview(**self._checked(arguments))
        except ToolError:
            return ""

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Run with these arguments; errors become observations, only cancellation is raised.

        `running.contained`, which runs all tools, enforces the time limit.
        """
        try:
            return await self._outcome(arguments)
        except Exception as error:  # noqa: BLE001 - errors of a tool must not end the turn
            return failed(self.name, error, self.limits)

    async def _outcome(self, arguments: Mapping[str, Any]) -> Observation:
        if not inspect.iscoroutinefunction(self._function):
            return await in_thread(
                lambda: to_observation(
                    self.name, self._function(**self._checked(arguments)), self.limits
                )
            )
        checked = await in_thread(lambda: self._checked(arguments))
        outcome = await cast("Awaitable[Any]", self._function(**checked))
        return await in_thread(lambda: to_observation(self.name, outcome, self.limits))

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._arguments is None:
            self._arguments = Arguments(self._function, self.schema.parameters)
        try:
            return self._arguments.check(arguments)
        except ToolError as error:
            raise ToolError(f"{self.name} was not run: {error}") from error


class WorkerTool(FunctionTool):
    """A read-only tool that runs in a worker process, where its limits are always enforced.

    Function and arguments must be picklable.
    """

    async def _outcome(self, arguments: Mapping[str, Any]) -> Observation:
        observation, start_mb, peak = await in_thread(
            lambda: in_worker(
                _run_in_worker,
                self.name,
                self._function,
                self._checked(arguments),
                self.limits,
                protection.get(),
            )
        )
        record_worker(start_mb, peak)
        return observation


def _run_in_worker(
    name: str,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    limits: Limits,
    protected: Protection | None,
) -> tuple[Observation, float | None, float | None]:
    """Return the observation, and the memory of the worker before the call and at its peak in MB."""
    protection.set(protected)
    start_mb = forget_peak()
    return to_observation(name, function(**arguments), limits), start_mb, peak_mb("self")


# -- the schema


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a function as a JSON schema.

    The string in `Annotated[type, "description"]` is the description. Raises TypeError for arguments that cannot be
    passed by name.
    """
    hints = get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _KEYWORD_KINDS:
            raise TypeError(
                f"{function.__name__}: a tool takes arguments by name, so not {parameter}"
            )
        kind, description = split_annotation(hints.get(name, str))
        properties[name] = _type_schema(kind)
        if description:
            properties[name]["description"] = description
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            properties[name] |= _default(parameter.default)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _default(value: Any) -> dict[str, Any]:
    """Return the schema entry of a default value; empty if JSON cannot represent it."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return {}
    return {"default": value}


def split_annotation(annotation: Any) -> tuple[Any, str]:
    """Split `Annotated[type, "description"]` into type and description; other annotations stay with the type."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    inner, *extras = get_args(annotation)
    for extra in extras:
        if not isinstance(extra, str | Subject):
            inner = Annotated[inner, extra]
    return inner, next((extra for extra in extras if isinstance(extra, str)), "")


def _subject(annotation: Any) -> Subject | None:
    """Return the Subject anywhere in an annotation, such as of list items."""
    within = (
        part if isinstance(part, Subject) else _subject(part) for part in get_args(annotation)
    )
    return next((subject for subject in within if subject is not None), None)


def _type_schema(annotation: Any) -> dict[str, Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None and annotation in _JSON_TYPES:
        return {"type": _JSON_TYPES[annotation]}
    if origin is Literal and all(isinstance(choice, str) for choice in arguments):
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) == 1:  # "or None" is expressed by the argument not being required.
            return _type_schema(members[0])
    if origin is list and arguments:
        kind, _ = split_annotation(arguments[0])
        return {"type": "array", "items": _type_schema(kind)}
    from pydantic import TypeAdapter  # heavy, and seldom needed

    schema = TypeAdapter(annotation).json_schema()
    return _clean(schema, schema.get("$defs", {}), ())


def _clean(node: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """Return the schema without titles and with inlined definitions; a recursive type becomes any object."""
    if isinstance(node, list):
        return [_clean(item, definitions, inside) for item in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    schema: dict[str, Any] = node  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        if name in inside:
            return {"type": "object"}
        return _clean(definitions[name], definitions, (*inside, name))
    cleaned = {
        key: _clean(value, definitions, inside)
        for key, value in schema.items()
        if key not in _OMITTED_KEYWORDS
    }
    if isinstance(schema.get("properties"), dict):  # here "title" may be the name of an argument
        cleaned["properties"] = {
            key: _clean(value, definitions, inside) for key, value in schema["properties"].items()
        }
    return cleaned


# -- checking arguments


class Arguments:
    """Validation and conversion of one function's arguments."""

    def __init__(self, function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
        from pydantic import ConfigDict, TypeAdapter  # heavy: only for a tool that is run
        from typing_extensions import TypedDict  # required by pydantic before Python 3.12

        self._properties: Mapping[str, Any] = parameters["properties"]
        self._required = frozenset(parameters.get("required", ()))
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        for name in self._properties:
            kind, _ = split_annotation(hints.get(name, str))
            fields[name] = kind if name in self._required else NotRequired[kind]
        make: Any = TypedDict
        record = make("Arguments", fields)
        record.__pydantic_config__ = ConfigDict(
            extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=True
        )
        self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(record)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the converted arguments; raises ToolError that names each wrong one and its expected type.

        For optional arguments, null means that they are missing.
        """
        from pydantic import ValidationError

        values = {
            name: value
            for name, value in arguments.items()
            if value is not None or name in self._required or name not in self._properties
        }
        try:
            return self._adapter.validate_python(values)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
            raise ToolError("; ".join(map(self._fault, details)) + ".") from None

    def _fault(self, detail: "ErrorDetails") -> str:
        name = str(detail["loc"][0]) if detail["loc"] else ""
        is_top_level = len(detail["loc"]) == 1
        if is_top_level and detail["type"] == "missing":
            return f"`{name}` is missing: it must be {self._expected(name)}"
        if is_top_level and detail["type"] == "extra_forbidden":
            match, names = closest_word(name, self._properties), ", ".join(self._properties)
            hint = f"did you mean `{match}`?" if match else f"it takes {names or 'none'}"
            return f"`{name}` is not an argument ({hint})"
        value = json.dumps(detail["input"], ensure_ascii=False, default=repr)
        value = value if len(value) <= _MAX_VALUE_CHARS else value[: _MAX_VALUE_CHARS - 1] + "…"
        expected = self._expected(name)
        if is_top_level and expected and detail["type"].endswith(_TYPE_ERRORS):
            return f"`{name}` must be {expected}, not {value}"
        path = name + "".join(f"[{part!r}]" for part in detail["loc"][1:])
        return f"`{path}`: {detail['msg']}, not {value}"

    def _expected(self, name: str) -> str:
        schema = self._properties.get(name, {})
        if "enum" in schema:
            return "one of " + ", ".join(map(str, schema["enum"]))
        return _TYPE_TEXTS.get(schema.get("type", ""), "")
