"""A function as a tool: its signature is the schema, its docstring's first line the description.

The schema is kept small because every word of it costs tokens. Plain types are translated here, so that listing tools
needs no pydantic; any other annotation is left to pydantic.
"""

import difflib
import inspect
import json
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
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

from ecoshell.errors import ToolError
from ecoshell.messages import Effect, Observation, ToolDocument
from ecoshell.tools import Limits, Subject
from ecoshell.tools.running import failed, forget_peak, in_thread, peak_mb, told, worked
from ecoshell.worker import in_worker

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_PLAIN: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
_WORDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_OF_TYPE = ("_type", "enum", "literal_error", "int_parsing", "float_parsing", "bool_parsing", "int_from_float")
"""How the faults end, as pydantic calls them, of what is not of the type itself."""
_NOISE = frozenset({"title", "$defs"})
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SHOWN = 80
"""Characters of a wrong argument that are shown."""


class FunctionTool:
    """A tool made of an annotated function, plain or `async`.

    A plain function runs in a thread; its long loops call `worker.checkpoint()`, so that a cancelled call ends there
    too. The function returns a text, an Observation, or anything JSON can say; it raises ToolError for what the model
    must know.
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
        """`preview` takes the function's arguments and gives, as a unified diff, what a run would change in files."""
        self._function = function
        self._preview = preview
        self._document: ToolDocument | None = None
        self._arguments: Arguments | None = None
        self.limits = limits or Limits()
        self.name = name or function.__name__
        self.effects: frozenset[Effect] = frozenset(effects)
        self.price_nano = price_nano

    @property
    def document(self) -> ToolDocument:
        """What registering the tool tells a model."""
        if self._document is None:
            description = (inspect.getdoc(self._function) or "").partition("\n")[0]
            self._document = ToolDocument(self.name, description, parameters_of(self._function))
        return self._document

    @cached_property
    def subjects(self) -> Mapping[str, Subject]:
        """The arguments that say what they stand for, with a Subject in their `Annotated`."""
        hints = get_type_hints(self._function, include_extras=True)
        found = {name: _subject(hints[name]) for name in inspect.signature(self._function).parameters if name in hints}
        return {name: subject for name, subject in found.items() if subject is not None}

    def preview(self, arguments: Mapping[str, Any]) -> str:
        """What a run would change in files; empty when it cannot be told, as when the run would fail."""
        if self._preview is None:
            return ""
        try:
            return self._preview(**self._checked(arguments))
        except ToolError:
            return ""

    async def run(self, arguments: Mapping[str, Any]) -> Observation:
        """Run with these arguments; what goes wrong is an observation, only cancelling is raised.

        The time of its limits is kept by `running.contained`, which all tools run through.
        """
        try:
            return await self._outcome(arguments)
        except Exception as error:  # noqa: BLE001 - a fence: whatever a tool raises is an observation, never the end of a turn
            return failed(self.name, error, self.limits)

    async def _outcome(self, arguments: Mapping[str, Any]) -> Observation:
        if not inspect.iscoroutinefunction(self._function):
            return await in_thread(lambda: told(self.name, self._function(**self._checked(arguments)), self.limits))
        checked = await in_thread(lambda: self._checked(arguments))
        outcome = await cast("Awaitable[Any]", self._function(**checked))
        return await in_thread(lambda: told(self.name, outcome, self.limits))

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self._arguments is None:
            self._arguments = Arguments(self._function, self.document.parameters)
        try:
            return self._arguments.check(arguments)
        except ToolError as error:
            raise ToolError(f"{self.name} was not run: {error}") from error


class WorkerTool(FunctionTool):
    """A tool made of a plain function that works on patterns, queries or the like, and changes nothing.

    It runs in a worker process, where the limits hold whatever it does; so function and arguments must be picklable.
    """

    async def _outcome(self, arguments: Mapping[str, Any]) -> Observation:
        found, start_mb, most_mb = await in_thread(
            lambda: in_worker(_told, self.name, self._function, self._checked(arguments), self.limits)
        )
        worked(start_mb, most_mb)
        return found


def _told(
    name: str, function: Callable[..., Any], arguments: Mapping[str, Any], limits: Limits
) -> tuple[Observation, float | None, float | None]:
    """What a worker says of a call: the observation, what the process held before, and its peak, in MB."""
    start_mb = forget_peak()
    return told(name, function(**arguments), limits), start_mb, peak_mb("self")


# -- the schema


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function as a JSON schema.

    An argument's description is the string in its `Annotated[type, "description"]`. Raises TypeError for a function
    with arguments that cannot be given by name.
    """
    hints = get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED:
            raise TypeError(f"{function.__name__}: a tool takes arguments by name, so not {parameter}")
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
    """What a schema says of a default: its value as JSON has it, and nothing where JSON has none for it."""
    try:
        json.dumps(value, allow_nan=False)
        return {"default": value}
    except (TypeError, ValueError):  # a path, a date, a member of an enumeration
        from pydantic_core import to_jsonable_python
    with suppress(ValueError):
        plain = to_jsonable_python(value)
        json.dumps(plain, allow_nan=False)
        return {"default": plain}
    return {}


def split_annotation(annotation: Any) -> tuple[Any, str]:
    """The type and the description in `Annotated[type, "description"]`; what else is said of the type stays with it."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    inner, *extras = get_args(annotation)
    for extra in extras:
        if not isinstance(extra, str | Subject):
            inner = Annotated[inner, extra]
    return inner, next((extra for extra in extras if isinstance(extra, str)), "")


def _subject(annotation: Any) -> Subject | None:
    """What is said anywhere in an annotation, such as of the items of a list."""
    within = (part if isinstance(part, Subject) else _subject(part) for part in get_args(annotation))
    return next((subject for subject in within if subject is not None), None)


def _type_schema(annotation: Any) -> dict[str, Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None and annotation in _PLAIN:
        return {"type": _PLAIN[annotation]}
    if origin is Literal and all(isinstance(choice, str) for choice in arguments):
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) == 1:  # "or None" is said by the argument not being required
            return _type_schema(members[0])
    if origin is list and arguments:
        return {"type": "array", "items": _type_schema(arguments[0])}
    from pydantic import TypeAdapter  # heavy, and seldom needed

    schema = TypeAdapter(annotation).json_schema()
    return _clean(schema, schema.get("$defs", {}), ())


def _clean(node: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """The schema without titles, its definitions put in place; a type that contains itself ends as any object."""
    if isinstance(node, list):
        return [_clean(item, definitions, inside) for item in node]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = node  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in found:
        name = str(found["$ref"]).rpartition("/")[2]
        return {"type": "object"} if name in inside else _clean(definitions[name], definitions, (*inside, name))
    cleaned = {key: _clean(value, definitions, inside) for key, value in found.items() if key not in _NOISE}
    if isinstance(found.get("properties"), dict):  # here "title" may be the name of an argument
        cleaned["properties"] = {key: _clean(value, definitions, inside) for key, value in found["properties"].items()}
    return cleaned


# -- checking arguments


class Arguments:
    """The arguments of one function: what they are (`parameters`, a JSON schema), and a check that converts them."""

    def __init__(self, function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
        from pydantic import ConfigDict, TypeAdapter  # heavy: only for a tool that is run
        from typing_extensions import TypedDict

        self._properties: Mapping[str, Any] = parameters["properties"]
        self._required = frozenset(parameters.get("required", ()))
        self._optional = frozenset(self._properties) - self._required
        """Arguments that may be left out, so that null says the same."""
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        for name in inspect.signature(function).parameters:
            kind, _ = split_annotation(hints.get(name, str))
            fields[name] = kind if name in self._required else NotRequired[kind]
        shape: Any = TypedDict("Arguments", fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]
        shape.__pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=True)
        self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)

    def check(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them; raises ToolError that names each wrong one, and what it must be."""
        from pydantic import ValidationError

        kept = {name: value for name, value in given.items() if value is not None or name not in self._optional}
        try:
            return self._adapter.validate_python(kept)
        except ValidationError as error:
            faults = [self._fault(detail) for detail in error.errors(include_url=False, include_context=False)]
        raise ToolError("; ".join(faults) + ".")

    def _fault(self, detail: "ErrorDetails") -> str:
        name = str(detail["loc"][0]) if detail["loc"] else ""
        whole = len(detail["loc"]) == 1
        if whole and detail["type"] == "missing":
            return f"`{name}` is missing: it must be {self._expected(name)}"
        if whole and detail["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, self._properties, n=1, cutoff=0.5)
            taken = f"did you mean `{near[0]}`?" if near else f"it takes {', '.join(self._properties) or 'none'}"
            return f"`{name}` is not an argument ({taken})"
        came = json.dumps(detail["input"], ensure_ascii=False, default=repr)
        came = came if len(came) <= _SHOWN else came[: _SHOWN - 1] + "…"
        if whole and detail["type"].endswith(_OF_TYPE) and (expected := self._expected(name)):
            return f"`{name}` must be {expected}, not {came}"
        path = name + "".join(f"[{part!r}]" for part in detail["loc"][1:])
        return f"`{path}`: {detail['msg']}, not {came}"

    def _expected(self, name: str) -> str:
        schema = self._properties.get(name, {})
        if "enum" in schema:
            return "one of " + ", ".join(map(str, schema["enum"]))
        return _WORDS.get(schema.get("type", ""), "")
