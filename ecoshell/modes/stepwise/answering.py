"""Answers from observations: the model words a short one, and what it says is checked against it; else it is quoted.

Quoting is honest, inventing is not: an answer stands only when its numbers are the observation's or the question's.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

from ecoshell.events import Emit
from ecoshell.messages import META_TOOLS, Message, visible_line
from ecoshell.models import Request
from ecoshell.models.metered import MeteredModel
from ecoshell.modes.stepwise import spans
from ecoshell.modes.stepwise.referring import references
from ecoshell.sessions.markdown import as_it_is, code, fenced, obeys
from ecoshell.strategies import Step

WORDED = 240
"""Characters up to which an observation is worded by the model; longer ones are quoted."""
QUOTED = 4000
"""Characters up to which an observation is quoted whole."""
REASON = 160
"""Characters of why something failed."""
MAX_TOKENS = 80

_NUMBER = re.compile(r"(?<![\w./:-])-?\d+(?:[.,:-]\d+)*(?![\w/:]|-\w)")
"""Numbers, dates and times that stand by themselves: no line numbers, no parts of names."""
_WORD = re.compile(r"[^\W\d_]+")
_GLUE_WORDS = (
    "a an and are as at be by contains equal equals for from has have in is it its long makes now of on result that "
    "the there this time to today total was were which with"
)
_GLUE = frozenset(_GLUE_WORDS.split())
_MEASURE = re.compile(r"(\d+(?:[.,:]\d+)*)\s+([A-Za-z]+)")


async def answered(model: MeteredModel, question: str, seen: Sequence[Step], emit: Emit, *, role: str) -> str:
    """The answer from the results: worded by the model where that can be checked, else quoted."""
    result = seen[-1].observation.text
    if len(seen) != 1 or not can_be_worded(question, result):
        return quotation(seen)
    text = (files("ecoshell.modes.stepwise") / "answers.md").read_text(encoding="utf-8").strip()
    messages: list[Message] = []
    for shot in text.split("\n\n"):
        asked, _, answer = shot.rpartition("\nAnswer: ")
        messages += [Message("user", asked), Message("assistant", answer)]
    messages.append(Message("user", f"Question: {question}\nResult: {result.strip()}"))
    request = Request(tuple(messages), want="text", max_tokens=MAX_TOKENS, purpose="compact")
    worded = (await model.ask(request, emit, role=role)).text.strip()
    return worded if holds(worded, question, result) and not obeys(worded) else quotation(seen)


def can_be_worded(question: str, observation: str) -> bool:
    """Whether a sentence about this observation can be checked: it is short, and its point is a number."""
    short = len(observation) <= WORDED and "\n" not in observation.strip()
    return short and bool(_numbers(observation) - _numbers(question))


def holds(answer: str, question: str, observation: str) -> bool:
    """Whether an answer says what the observation says, as far as its numbers and their units show.

    It must name a number the observation adds to the question, no number that is in neither, no number with another
    unit than the observation gives it, and no word that is in neither, but for the small words a sentence needs. What
    is asked of a file may be something that the observation does not speak of, so there its words are all there is.
    """
    seen, asked, said = _numbers(observation), _numbers(question), _numbers(answer)
    spoken = _words(question) if not spans.file_paths(question) else set[str]()
    if not _words(answer) <= _words(observation) | spoken | _GLUE:
        return False
    if not said <= seen | asked:
        return False
    measures = set(_MEASURE.findall(observation.lower()))
    units = {unit for _, unit in measures}
    if any((number, unit) not in measures for number, unit in _MEASURE.findall(answer.lower()) if unit in units):
        return False
    return bool(said & (seen - asked))


def grounded(answer: str, question: str, read: str, *, sure: bool) -> str:
    """An answer to a question on what was read, if all it says stands in one line of that; else such lines.

    `sure` says that the question is about it; else that shows in its words, and where nothing does, an answer stands
    as long as its figures do.
    """
    lines = [line for line in read.splitlines() if not re.fullmatch("`{3,}", line)]
    wanted = {_stem(word) for word in spans.words(question)}
    near = [line for line in lines if wanted & {_stem(word) for word in _WORD.findall(line)}]
    if not sure and not near and not references(question):
        if _numbers(answer) <= _numbers(read) | _numbers(question):
            return answer
        return f"This cannot be told from what was read last:\n\n{fenced(_shortened(read))}"
    said, asked, anywhere = (_words(text) | _numbers(text) for text in (answer, question, read))
    for line in lines if not obeys(answer) else ():
        there = _words(line) | _numbers(line)
        # beside what stands there it says nothing but what the question alone speaks of
        if said <= there | _GLUE | (asked - anywhere) and (said & there) - asked - _GLUE:
            return answer
    return f"What was read says:\n\n{fenced(_shortened(chr(10).join(near or lines)))}"


def quotation(steps: Sequence[Step]) -> str:
    """The observations of the steps as they are, each below the call it came from when there are several."""
    if not steps:
        return "Nothing was found out before the limit."
    if len(steps) == 1:
        return as_it_is(_shortened(steps[0].observation.text))
    blocks = ((code(step.call.signature()), fenced(_shortened(step.observation.text))) for step in steps)
    return "\n\n".join(f"{call}:\n\n{block}" for call, block in blocks)


def failed(steps: Sequence[Step]) -> str:
    """What failed before another tool was used in its place; empty where nothing did."""
    done = {step.call.name for step in steps if step.observation.ok}
    lost = [step for step in steps if step.call.name not in done | META_TOOLS]
    why = ((step.call.name, visible_line(step.observation.text)[:REASON]) for step in lost)
    return "\n".join(f"{name} failed: {code(text) if obeys(text) else text}" for name, text in why)


def with_told(*texts: str) -> str:
    """An answer with what is to be told above and below it, if anything."""
    return "\n\n".join(filter(None, texts))


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(text))


def _shortened(text: str) -> str:
    text = text.strip("\r\n").rstrip()
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}\n[truncated: {len(text) - QUOTED} more characters]"
