"""Checks the arguments a model gives against a function's signature, and says what is wrong in words it can act on."""

import difflib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, get_type_hints

from ecoshell.errors import ToolError
from ecoshell.tools.schema import split_annotation

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WORDS = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_SHOWN = 80


class Arguments:
    """The arguments of one function: what they are (`parameters`, a JSON schema), and a check that converts them."""

    def __init__(self, function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
        from pydantic import ConfigDict, TypeAdapter  # heavy: only for a tool that is run
        from typing_extensions import TypedDict

        self._properties: Mapping[str, Any] = parameters["properties"]
        self._required = frozenset(parameters.get("required", ()))
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

    @property
    def _optional(self) -> frozenset[str]:
        """Arguments that may be left out, so that null says the same."""
        return frozenset(self._properties) - self._required

    def _fault(self, detail: "ErrorDetails") -> str:
        name = str(detail["loc"][0]) if detail["loc"] else ""
        if detail["type"] == "missing":
            return f"`{name}` is missing: it must be {self._expected(name)}"
        if detail["type"] == "extra_forbidden":
            return f"`{name}` is not an argument{self._nearest(name)}"
        came = _shown(detail["input"])
        if len(detail["loc"]) == 1 and (expected := self._expected(name)):
            return f"`{name}` must be {expected}, not {came}"
        path = name + "".join(f"[{part!r}]" for part in detail["loc"][1:])
        return f"`{path}`: {detail['msg']}, not {came}"

    def _expected(self, name: str) -> str:
        schema = self._properties.get(name, {})
        if "enum" in schema:
            return "one of " + ", ".join(map(str, schema["enum"]))
        return _WORDS.get(schema.get("type", ""), "")

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._properties, n=1, cutoff=0.5)
        if near:
            return f" (did you mean `{near[0]}`?)"
        names = ", ".join(self._properties)
        return f" (it takes {names})" if names else " (it takes none)"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
