"""Rules that judge whether a result helped (BTP §2.4, SPEC §2).

A failed or empty result did not help. A call that was not run, or that had wrong arguments, says nothing about the
tool: forbidding `read_file` after one mistyped path would end the task.

The result is parsed if it is JSON, and then checked for failures, mistakes of the caller and emptiness.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ecoshell.messages import Call, Observation

_EXCERPT_CHARS = 120
_ABOUT_ERRORS = re.compile(r"error|exception|fail|trace|\blogs?\b|crash|\bbugs?\b", re.IGNORECASE)
_A_FILE = re.compile(r"path|file", re.IGNORECASE)
_MAX_ERROR_CHARS = 600
"""Maximum characters of a text that may be an error message; longer ones are documents."""
_MAX_NOTICE_CHARS = 300
"""Maximum characters of a text that may report that nothing was found."""


def _any(*patterns: str, start: bool = False) -> re.Pattern[str]:
    """Compile alternatives that match anywhere, or only at the start after signs such as ❌ or **."""
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re.compile(
        rf"[\W_]{{0,20}}(?:{joined})" if start else joined, re.IGNORECASE | re.MULTILINE
    )


_ERROR = _any(
    r"(?:[\w.]{0,80}(?:error|exception|failure)|fatal|panic)\b[^\n:]{0,80}:",  # Error: …; sqlite3.OperationalError: …
    r"http(?:/[\d.]+)?\s*(?:status|error|code)?[\s:]*[45]\d\d\b",
    r"[45]\d\d[\s:]+(?:bad|not|unauth\w+|forbidden|internal|service|gateway|too|method|request)\b",
    r"(?:failed|unable) to \w+",
    r"(?:could not|cannot|can't|couldn't) \w+",
    r"[^\n]{0,60}\b(?:timed out|rate limit(?:ed)?|quota exceeded|too many requests)\b",
    r"(?:not found|unauthorized|forbidden|access denied|internal server error|service unavailable)\W*$",
    r"(?:unknown|no such|invalid) (?:tool|function|method|endpoint)\b",
    start=True,
)
_TRACE = _any(
    r"Traceback \(most recent call last\)",
    r"[\w.]{1,80}(?:Error|Exception): [^\n]*\n\s+at ",
    start=True,
)
_MARKED = _any(r"<error>", r"\bdoes(?:n't| not) exist\W*\Z")

_ILL_FORMED = _any(
    r"validation errors?\b",
    r"invalid[_ ](?:type|arguments?|parameters?|params|input)\b",
    r"-32602\b",
    r"was not run: ",
    r"(?:missing|required) (?:required )?(?:argument|parameter|field|property|positional)",
    r"is a required (?:property|argument|parameter|field)",
)
"""The arguments do not fit the tool's parameters."""
_OUTAGE = _any(
    r"time[ds]?[ -]?out",
    r"did not answer",
    r"took longer",
    r"connect(?:ion|ing|ed)?\b",
    r"network (?:error|is unreachable)",
    r"(?:fetch|name resolution|request) failed",
    r"could not be fetched",
    r"temporar(?:y|ily)",
    r"unavailable",
    r"rate limit|too many requests|quota|overloaded",
    r"api[ _-]?key|unauthori[sz]ed|credentials?\b",
    r"internal (?:server )?error|bad gateway",
    r"(?:http|status|code|error|answered)\D{0,12}(?:40[12378]|429|5\d\d)\b",
)
"""The tool, or a service that it needs, does not work."""
_WRONG_VALUE = _any(
    r"no such (?:file|directory|folder)|file not found|ENOENT|EISDIR|ENOTDIR",
    r"(?:is|not) an? (?:file|folder|directory|regular file|unit|binary file|JMESPath query|UTC offset|web address)",
    r"is not (?:JSON|UTF-8|one of|allowed)|not allowed|outside the workspace",
    r"permission denied|cannot be (?:read|computed|converted|applied|resolved|fetched: only)",
    r"(?:binder|catalog|conversion|parser) error:",  # of DuckDB
    r"division by zero|syntax ?error|invalid expression|nested too deeply|takes \d+ argument",
    r"no (?:unit|time zone) is called|has several times",
    r"is unknown|cannot access|is empty:|nothing to run|is before `|must (?:be|have)\b|give (?:either )?`",
    r"does not occur|\boccurs \d+ times|is too (?:large|long|small)|or too small|too long to match",
)
"""The arguments have the right types but wrong values."""
_ABSENT = _any(
    r"not found", r"\b404\b", r"no such", r"does(?:n't| not) exist", r"unknown", r"invalid", r"unrecogni[sz]ed",
    r"unsupported", r"there is no", r"is not ", r"must ", r"expected", r"required", r"missing", r"ambiguous",
)  # fmt: skip
"""Words for missing or wrong things, which are mistakes of the caller if they refer to its arguments."""
_QUOTED = re.compile(r"[`'\"]([^`'\"\n]{2,80})[`'\"]")
_PROGRAM = re.compile(
    r"^\[(?:exit status -?\d+|ended by signal \d+|stopped: the time limit [^\]\n]*)\]\Z", re.M
)
"""The end of a failed program that the caller wrote."""

_KINDS = (
    "results?|match(?:es)?|hits?|items?|records?|entries|rows"
    "|documents?|articles?|papers?|data|objects?|pages?|files?"
)
_SAID_OF_NOTHING = r"for\b|in\b|found|match|available|returned|was|were"
_NOTHING = _any(
    rf"(?:no|zero|0) (?:[\w'-]+ ){{0,3}}?(?:{_KINDS})\b *(?:$|[.!,:;(]|{_SAID_OF_NOTHING})",
    r"nothing (?:was |is )?(?:found|matches|matched|to show)\b",
    r"(?:no|none)\b[^\n.]{0,60}\bfound\b\W*$",
    r"(?:total|count|found)[^\n:]{0,30}: *0\b(?![.,]\d)",
    r"(?:none|null|nil|empty|n/a|undefined|nan)\W*\Z",
    start=True,
)
_UNFINISHED = re.compile(r"\bloading\s*(?:\.{3}|…)\s*\Z", re.IGNORECASE)
_NO_OUTPUT = re.compile(r"^\[no output\b[^\n]*\Z|\boutput:\Z", re.IGNORECASE | re.MULTILINE)
_PLACE_EMPTY = re.compile(r"The (?:file|folder) [^\n]* is empty\.\Z")
_ACTING_WORDS = (
    "activate add append book cancel cd change chmod click close copy cp create delete echo edit fill insert lock log"
    " mkdir move mv navigate open place post press put remove rename rm rmdir save send set start stop store submit"
    " switch touch unlock update upload write"
)
_ACTING = frozenset(_ACTING_WORDS.split())
_ASKING_WORDS = "check count fetch find get grep list look lookup query read search show view"
_ASKING = frozenset(_ASKING_WORDS.split())
_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


# -- results in JSON

_MAX_DEPTH = 3
_MAX_CHARS = 32_000
"""Maximum characters of a result that are examined."""
_BLANK: tuple[object, ...] = (None, "", [], {})
_ERRORS = ("error", "errors", "exception", "error_message")
_NO_ERROR = frozenset({"", "false", "no", "none", "null", "ok"})
_SUCCESSES = ("success", "succeeded", "ok")
_STATES = ("status", "result", "state", "outcome")
_FAILED = frozenset({"error", "fail", "failed", "failure"})
_CODES = ("status", "statuscode", "status_code")
_MESSAGES = ("message", "reason", "detail", "msg")
_RESULT_NAMES = "data documents entries hits items list matches objects records result results rows"
_RESULTS = frozenset(_RESULT_NAMES.split())
_COUNT_NAMES = "count num_results total total_count total_results totalcount totalresults"
_COUNTS = frozenset(_COUNT_NAMES.split())


@dataclass(frozen=True, slots=True)
class Payload:
    """The text of a result; `value` is its JSON object, list or null if `is_json`."""

    text: str
    failed: bool
    is_json: bool = False
    value: Any = None

    @classmethod
    def of(cls, observation: Observation) -> "Payload":
        """Parse an observation."""
        text, failed = observation.text[:_MAX_CHARS].strip(), not observation.ok
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return cls(text, failed)
        if isinstance(value, str):
            return cls(value.strip(), failed)
        if value is None or isinstance(value, (dict, list)):
            return cls(text, failed, is_json=True, value=cast("Any", value))
        return cls(text, failed)


def failing(value: Any, depth: int = 0) -> str:
    """Return the error that a JSON value, or every one of its parts, reports; empty if there is a result.

    An object reports a failure with `error`, `"success": false` or a failing `status`. A number as `error` is a
    measurement, and an error next to results is a note.
    """
    if isinstance(value, Mapping):
        fields, message, failed = _lowered(value), "", False
        has_results = any(fields.get(name) for name in _RESULTS)
        for error in (fields[name] for name in _ERRORS if name in fields):
            is_failure = (
                error.strip().lower() not in _NO_ERROR if isinstance(error, str) else error is True
            )
            if is_failure or (_is_nested(error) and error and not has_results):
                message, failed = "" if error is True else str(error), True
                break
        states = {str(fields.get(name, "")).lower() for name in _STATES}
        codes = [fields[name] for name in _CODES if type(fields.get(name)) is int]
        failed = failed or any(fields.get(name) is False for name in _SUCCESSES)
        failed = failed or fields.get("iserror") is True
        if failed or states & _FAILED or any(400 <= code < 600 for code in codes):
            details = (fields[name] for name in _MESSAGES if isinstance(fields.get(name), str))
            reported = " ".join(filter(None, (message, next(details, ""))))
            return reported or "it reports a failure"
    parts = children(value)
    if depth == _MAX_DEPTH or not parts or not all(_is_nested(part) and part for part in parts):
        return ""
    failures = [failing(part, depth + 1) for part in parts]
    return failures[0] if all(failures) else ""


def empty(value: Any) -> bool:
    """Return whether a JSON value, its results, or a list with a count of 0, is empty."""
    if value is None or all(part in _BLANK for part in children(value)):
        return True
    if not isinstance(value, Mapping):
        return False
    fields = _lowered(value)
    lengths = [len(children(part)) for part in fields.values() if isinstance(part, list)]
    if any(lengths):
        return False
    results = [fields[name] for name in _RESULTS if name in fields]
    if results and all(part in _BLANK for part in results):
        return True
    return bool(lengths) and any(
        type(fields.get(name)) is int and fields[name] == 0 for name in _COUNTS
    )


def texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts and numbers of a JSON value as text."""
    if isinstance(value, (str, int, float)):
        yield str(value)
    elif depth <= _MAX_DEPTH:
        for part in children(value):
            yield from texts(part, depth + 1)


def children(value: Any) -> list[Any]:
    """Return the direct members of a JSON object or list."""
    if isinstance(value, Mapping):
        return list(cast("Mapping[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list))


def _lowered(value: Any) -> dict[str, Any]:
    return {str(name).lower(): part for name, part in cast("Mapping[str, Any]", value).items()}


# -- judging results


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a result helped; None if unknown, or if it says nothing about the tool."""

    helpful: bool | None
    by: str
    """`rules`, `classifier`, `model` or `plugin`; empty without a judgment."""
    reason: str
    """A short reason, which may quote the tool."""
    sure: bool = True
    """False if only comparing the result with the question could decide."""


def judgeable(ruled: Verdict) -> bool:
    """Return whether a result says anything about its tool: the call ran and was not a mistake of the caller."""
    return ruled.helpful is not None or not ruled.sure


def by_rules(query: str, call: Call, observation: Observation) -> Verdict:
    """Judge one result by rules; never raises.

    The rules are sure of failures, empty results and mistakes of the caller. Everything else counts as helpful.
    """
    if observation.refused:
        return Verdict(None, "", "the call was not run")
    payload = Payload.of(observation)
    message = failing(payload.value)[:_MAX_NOTICE_CHARS] if payload.is_json else ""
    if payload.failed:
        return _failed(call, message or _gist(payload.text))
    if observation.changes:
        return Verdict(True, "rules", "it changed files")
    if not payload.is_json:
        is_error = len(payload.text) <= _MAX_ERROR_CHARS and _ERROR.match(payload.text)
        is_marked = len(payload.text) <= _MAX_NOTICE_CHARS and _MARKED.search(payload.text)
        if _TRACE.match(payload.text) or is_error or is_marked:
            # The question may be about errors, or a file may contain them.
            arguments = json.dumps(list(call.arguments.values()), ensure_ascii=False, default=str)
            is_from_file = "\n" in payload.text and any(map(_A_FILE.search, call.arguments))
            if is_from_file or _ABOUT_ERRORS.search(f"{query} {arguments}"):
                return Verdict(
                    None, "", "it reads like an error, which may answer the question", sure=False
                )
            message = _gist(payload.text)
    if message:
        return _failed(call, message)
    if not payload.is_json and (
        _NO_OUTPUT.search(payload.text) or _PLACE_EMPTY.match(payload.text)
    ):
        return Verdict(None, "", "it had no output", sure=False)  # which may be correct
    if not _is_empty(payload):
        return Verdict(True, "rules", "it gave a result", sure=False)
    # The first known word in the tool's name tells whether it acts, and may have no output, or looks something up.
    words = (word.lower() for word in _NAME_WORDS.findall(call.name))
    if next((word for word in words if word in _ACTING or word in _ASKING), "") in _ACTING:
        return Verdict(None, "", "it acted and had no output", sure=False)
    return Verdict(False, "rules", "it found nothing")


def _is_empty(payload: Payload) -> bool:
    """Return whether a result is empty, only a heading, or a notice that nothing was found."""
    if payload.is_json:
        return empty(payload.value)
    is_heading = payload.text.endswith(":") and payload.text.count("\n") <= 1
    is_notice = _UNFINISHED.search(payload.text) or _NOTHING.match(payload.text)
    return len(payload.text) <= _MAX_NOTICE_CHARS and bool(
        not payload.text or is_heading or is_notice
    )


def _failed(call: Call, message: str) -> Verdict:
    """Judge a failure: wrong arguments, or names of missing things, are mistakes that the caller can correct."""
    excerpt = " ".join(message.split())[:_EXCERPT_CHARS]
    is_absent = bool(_ABSENT.search(message))
    is_named = is_absent and any(
        re.search(rf"[`'\"]{re.escape(name)}[`'\"]", message) for name in call.arguments
    )
    if is_named or _PROGRAM.search(message) or _ILL_FORMED.search(message):
        is_mistake = True
    elif _OUTAGE.search(message):
        is_mistake = False
    else:
        values = [value for value in texts(dict(call.arguments)) if len(value) > 1]
        quoted = _QUOTED.findall(message)
        is_mistake = bool(_WRONG_VALUE.search(message)) or (
            is_absent
            and any(value in message or any(part in value for part in quoted) for value in values)
        )
    if is_mistake:
        return Verdict(None, "", f"the call was wrong, not the tool: {excerpt}")
    return Verdict(False, "rules", f"it failed: {excerpt}" if excerpt else "it failed")


def _gist(text: str) -> str:
    """Return the error line: the last one of a stack trace or a program's output, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    last = bool(_TRACE.match(text)) and "Traceback" in text
    return (lines[-1] if last or _PROGRAM.search(lines[-1]) else lines[0])[:_MAX_NOTICE_CHARS]
