"""What a part of a question offers a tool, once the results that its words speak of stand in their place.

Nothing is made up for such words: where the results give nothing that the tool could take, or several things that it
could, there is no call.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ecoshell.agent.arguments import direct_call
from ecoshell.errors import CallBroken
from ecoshell.messages import Call, Observation, ToolDocument
from ecoshell.modes.stepwise import arguments, parting, referring, spans, sums, values
from ecoshell.modes.stepwise.drafting import Part
from ecoshell.modes.stepwise.values import NoValue
from ecoshell.strategies import Step

_STEM = 5
_FIX = "Ask for the steps one by one, or choose a larger model with /model."


_SPELLED = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|sixty|"
    r"seventy|eighty|ninety|hundred|thousand|million|dozen|half|halve|third|quarter|double|twice|triple|percent|squared?|"
    r"cubed?|average|mean)\b",
    re.IGNORECASE,
)
"""Words that say a number, or that take one to work out."""


_WORK = re.compile(r"[-+*/^×÷·%(!²³√]|[^\W\d_]{2}")
"""What makes an expression more than a number."""


@dataclass(frozen=True, slots=True)
class Filling:
    """What is left of a tool's document to choose from, and what the model is asked."""

    document: ToolDocument
    text: str
    elsewhere: str = ""
    """Where else its arguments may come from."""
    numbers: tuple[str, ...] = ()
    """Those of results, which the call must hold."""

    def checked(self, call: Call) -> Call:
        """The call; raises CallBroken where it lacks a result's number, or holds what nobody has said."""
        source, said = f"{self.text}\n{self.elsewhere}", _magnitudes(_said(call))
        wrong = [f"without {one}" for one in _magnitudes(" ".join(self.numbers)) - said]
        wrong += [f"with {one[:40]}" for one in arguments.invented(self.document, call, source)]
        if arguments.takes_numbers(self.document) and not _SPELLED.search(source):
            more = said - (_magnitudes(self.text) | _magnitudes(self.elsewhere))
            wrong += [f"with {one}" for one in sorted(more)]
        if arguments.takes(self.document, sums.expressions) and said and not _WORK.search(_said(call)):
            wrong.append("with nothing to work out")
        if wrong:
            raise CallBroken(
                f"{call.signature()[:200]} was made of “{self.text}”, {' and '.join(wrong)}.",
                tool=call.name,
                arguments=call.arguments,
                fix=_FIX,
            )
        return call


def filling(document: ToolDocument, part: Part, given: Sequence[Step], question: str) -> Filling:
    """What to fill in for a part; `given` are the results of the parts it speaks of, in their order.

    `question` is where else its arguments may stand. Raises CallBroken where the results cannot be what it speaks of.
    """
    if not part.after:
        return Filling(arguments.narrowed(document, part.text, question), part.text, question)
    try:
        if len(given) != len(part.after):
            raise NoValue("not all of that has a result")
        if arguments.takes_numbers(document):
            return _with_numbers(document, part, given)
        return _with_names(document, part, given) or _with_content(document, part, given)
    except NoValue as nothing:
        words = " and ".join(dict.fromkeys(f"“{one.words}”" for one in referring.references(part.text)))
        why = f"what {words} is cannot be told: {nothing}."
        raise CallBroken(why, tool=document.name, fix=_FIX) from nothing


def untaken(document: ToolDocument, text: str, call: Call) -> list[str]:
    """Files, addresses and numbers that a request names and the call made of it does not, and what else it asks for.

    That is what it joins to the rest with words that neither the call nor the tool's document has.
    """
    said = _said(call)
    known = f"{document.name} {document.description} {said}".replace("_", " ").lower()
    first, *further = parting.joined(text)
    strange: dict[str, list[bool]] = {}
    for one in (first, *further):  # the forms of a word share its beginning: `count`, `counted`
        strange[one] = [word.lower().removesuffix("s")[:_STEM] not in known for word in spans.words(one)]
    further = [one for one in further if any(strange[one])]
    if len(strange) > 1 and strange[first] and all(strange[first]):
        further.insert(0, first)
    named = [name for name in (*spans.urls(text), *spans.file_paths(text)) if name not in said]
    numbers = sorted(_magnitudes(spans.masked(text, named=" ", quoted=" ")) - _magnitudes(said))
    return [*further, *(one for one in (*named, *numbers) if not any(one in more for more in further))]


def _with_numbers(document: ToolDocument, part: Part, given: Sequence[Step]) -> Filling:
    """The part with the results' numbers, and their units where it needs and does not name one."""
    found = [values.number(step, (part.text, one.text)) for step, one in zip(given, part.after, strict=True)]
    if len(found) > 1 and all(one.number == "one" for one in referring.references(part.text)):
        raise NoValue(f"it could be {' or '.join(number for number, _ in found)}")
    if referring.furthest(part.text) > len(found):
        raise NoValue("there are not so many results before it")
    text = referring.replaced(part.text, [number for number, _ in found])
    if arguments.takes(document, sums.expressions) and not sums.expressions(text):
        raise CallBroken(f"how to work out “{text}” is not clear.", tool=document.name, fix=_FIX)
    if arguments.takes(document, spans.measured_units) and not spans.measured_units(text):
        text = referring.replaced(part.text, [f"{number} {unit}".strip() for number, unit in found])
    numbers = tuple(number for number, _ in found if number in text)
    return Filling(arguments.narrowed(document, text, ""), text, numbers=numbers)


def _with_names(document: ToolDocument, part: Part, given: Sequence[Step]) -> Filling | None:
    """The part with the file or the address the results are about; None where the tool takes none, or wants more."""
    text = part.text
    places = arguments.takes(document, *arguments.PLACES)
    if not any(arguments.offered(document, place, text) for place in places):
        named = dict.fromkeys(name for step in given for name in values.names(step))
        fitting = [name for name in named if any(arguments.offered(document, place, name) for place in places)]
        if len(fitting) != 1 or referring.furthest(text) > 1:
            return None
        text = referring.replaced(text, fitting)
    elif any(name in (document.parameters.get("required") or ()) for name in _contents(document, text)):
        return None
    return Filling(arguments.narrowed(document, text, ""), text) if places else None


def _with_content(document: ToolDocument, part: Part, given: Sequence[Step]) -> Filling:
    """The part with what the results say, or the number of one, as the text that the tool takes.

    Raises NoValue where it takes none.
    """
    if not any(referring.QUANTITY.search(one.words) for one in referring.references(part.text)):
        content = "\n\n".join(map(values.text, given))
    elif len(given) > 1:
        raise NoValue("there are several, and it has still to be worked out of them")
    else:
        content, _ = values.number(given[0], (part.text, part.after[0].text))
    whole = Step("", given[0].call, Observation(content))
    cut = arguments.narrowed(document, part.text, "")
    for name, schema in _contents(document, part.text).items():
        alone = replace(document, parameters=_object({name: schema}))
        call = direct_call(alone, [whole])
        if call is not None:
            kept = {**cut.parameters["properties"], name: {"enum": [call.arguments[name]]}}
            return Filling(replace(cut, parameters={**cut.parameters, **_object(kept)}), part.text)
    raise NoValue(f"what came before gives nothing that {document.name} takes, or more than one such thing")


def _contents(document: ToolDocument, text: str) -> dict[str, Any]:
    """The parameters that a result may fill, those first that must be given; none where the part quotes a text."""
    properties: dict[str, Any] = document.parameters.get("properties") or {}
    required = document.parameters.get("required") or ()
    free = [name for name, kind in arguments.kinds(document).items() if kind is None and not spans.quoted(text)]
    return {name: properties[name] for name in sorted(free, key=lambda name: name not in required)}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _said(call: Call) -> str:
    """All values of a call, as a text."""
    return " ".join(str(value) for value in call.arguments.values())


def _magnitudes(text: str) -> Counter[str]:
    """The numbers of a text without their signs, and how often each stands in it."""
    return Counter(re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))
