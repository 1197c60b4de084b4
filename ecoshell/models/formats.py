"""The call formats of local model families."""

from typing import Any

from ecoshell.models.call_format import CallFormat
from ecoshell.models.elements import Elements
from ecoshell.models.grammar import PYTHON, Notation

REASONING_TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))  # tags around reasoning


def _tagged(
    name: str,
    tags: tuple[str, str],
    elements: Elements | None = None,
    *,
    sign: str = "",
    inner: str = "\n",
    gap: str = "\n",
) -> CallFormat:
    """A format with each call between two tags; `inner` is inside each tag, `gap` between two calls."""
    opens, closes = tags
    return CallFormat(
        name,
        signs=(sign or opens,),
        opens=opens,
        start=inner,
        between=f"{inner}{closes}{gap}{opens}{inner}",
        end=f"{inner}{closes}",
        syntax="elements" if elements else "json",
        elements=elements,
    )


def _braces(name: str, opens: str, closes: str, quote: str) -> CallFormat:
    return CallFormat(
        name,
        signs=(opens,),
        opens=opens,
        start="call:",
        between=f"{closes}{opens}call:",
        end=closes,
        syntax="braces",
        notation=Notation(argument="{}:", key="{}:", comma=",", quote=quote),
    )


def _listed(
    name: str, *signs: str, opens: str = "", closes: str = "", **options: Any
) -> CallFormat:
    """A format with all calls in one list."""
    end = f"]{closes}"
    return CallFormat(name, signs, opens=opens, start="[", between=", ", end=end, **options)


GENERIC = CallFormat("generic", signs=("<function=", "]<]minimax[>["), between="\n")
"""For templates without tools, or with tags of an unsupported format (Functionary 3.1, MiniMax-M3)."""
_TOOL_CALL = ("<tool_call>", "</tool_call>")
HERMES = _tagged("hermes", _TOOL_CALL)
_FUNCTION, _PARAMETER_END = ("<function=", ">\n"), "</parameter>\n"
_FORMATS = (
    _braces("function-gemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    _braces("gemma-4", "<|tool_call>", "<tool_call|>", '<|"|>'),
    _listed(
        "liquid",
        *("<|tool_call_start|>", "<|tool_list_start|>"),
        opens="<|tool_call_start|>",
        closes="<|tool_call_end|>",
        syntax="python",
        notation=PYTHON,
    ),
    _tagged(
        "seed",
        ("<seed:tool_call>", "</seed:tool_call>"),
        Elements(_FUNCTION, ("<parameter=", ">"), _PARAMETER_END, "</function>"),
    ),
    _tagged(
        "qwen3-coder",
        _TOOL_CALL,
        Elements(_FUNCTION, ("<parameter=", ">\n"), f"\n{_PARAMETER_END}", "</function>"),
        sign="<parameter=",
    ),
    _tagged(
        "glm-4.7",
        _TOOL_CALL,
        Elements(("", ""), ("<arg_key>", "</arg_key><arg_value>"), "</arg_value>"),
        sign="</arg_key><arg_value>",
        inner="",
        gap="",
    ),
    _tagged(
        "glm-4.5",
        _TOOL_CALL,
        Elements(("", "\n"), ("<arg_key>", "</arg_key>\n<arg_value>"), "</arg_value>\n"),
        sign="<arg_key>",
        inner="",
    ),
    CallFormat(
        "minimax-m2",
        signs=("<minimax:tool_call>",),
        opens="<minimax:tool_call>",
        start="\n",
        between="\n",
        end="\n</minimax:tool_call>",
        syntax="elements",
        elements=Elements(
            ('<invoke name="', '">\n'), ('<parameter name="', '">'), _PARAMETER_END, "</invoke>"
        ),
    ),
    GENERIC,
    CallFormat(
        "minimax-m1",
        signs=('<tool_calls>\\n{"name"',),
        opens="<tool_calls>",
        start="\n",
        between="\n",
        end="\n</tool_calls>",
    ),
    HERMES,
    CallFormat(
        "mistral-named", ("[ARGS]",), "[TOOL_CALLS]", between="[TOOL_CALLS]", syntax="named"
    ),
    _listed("mistral", "[TOOL_CALLS]", opens="[TOOL_CALLS]"),
    CallFormat("phi-functools", ("functools",), "functools[", between=", ", end="]"),
    _listed(
        "phi",
        "<|tool|>",
        opens="<|tool_call|>",
        closes="<|/tool_call|>",
        result_role="tool_response",
        tools_in_system=True,
    ),
    _listed("llama-pythonic", "[func_name1(", syntax="python", notation=PYTHON),
    CallFormat("llama-json", ("<|start_header_id|>ipython",), argument_key="parameters"),
)
"""Formats with more specific signs first."""
FORMATS = {form.name: form for form in _FORMATS}


def detect(template: str) -> CallFormat:
    """The format of a chat template."""
    forms = (form for form in _FORMATS if any(sign in template for sign in form.signs))
    return next(forms, GENERIC)


def format_of_text(text: str) -> CallFormat:
    """The format whose marker occurs in a text, for servers that do not parse calls."""
    return next((form for form in FORMATS.values() if form.opens and _occurs(form, text)), GENERIC)


def _occurs(form: CallFormat, text: str) -> bool:
    if form.elements and form.elements.head_pattern(form.opens).search(text) is None:
        return False  # several formats share the marker
    return form.opens in text
