"""The nouns of BTP: one use of a tool, what past uses say of a tool for a new query, and a figure with its spread.

Beside them an attempt, by which modes are compared.
"""

import hashlib
import json
from dataclasses import dataclass, field

from ecoshell.messages import ToolDocument


@dataclass(frozen=True, slots=True)
class Use:
    """One use of one tool, U = ⟨q, d(t), p, r⟩ (BTP §2.2), as it is kept; texts are redacted before they come here."""

    query: str
    tool: str
    document_hash: str
    arguments: str
    """JSON text, shortened."""
    result: str
    """The beginning of what came back."""
    result_hash: str
    ok: bool
    helpful: bool | None
    """None when nobody could tell."""
    judged_by: str
    """`rules`, `classifier`, `model` or `you`; empty when nobody judged."""
    model: str
    price_nano: int
    """Of the tool itself."""
    step_nano: int | None
    """Of the model step that made the call; None when its price is unknown."""
    step_tokens: int
    """Tokens of that step, read and written."""
    seconds: float
    """Of the tool and of that step."""
    size_level: int
    """0 to 3, by the length of the arguments."""
    session: str = ""
    turn: int = 0
    call: str = ""
    """The call's id within its turn; with session and turn it names the use."""
    at: str = ""
    """UTC, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one question in one mode, as it is kept; the question is redacted before it comes here.

    A turn in which one mode goes on where another gave up is two attempts.
    """

    query: str
    mode: str
    """`single` or `umi`."""
    models: str
    """Who played: one name, or those of the roles joined by `+`."""
    strategy: str
    outcome: str
    """`answered`, `gave_up` or `limit`."""
    price_nano: int | None
    """Of models and tools; None when a part of it is unknown."""
    tokens: int
    """Read and written."""
    seconds: float
    """Of models and tools, without waiting for a person."""
    session: str = ""
    turn: int = 0
    """With session and mode it names the attempt."""
    at: str = ""
    """UTC, ISO 8601."""


Experienced = Use | Attempt
"""What an experience is made of."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A running mean with its standard deviation; `count` 0 says that nothing was seen yet."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What past uses say of one tool for a new query; `w = exp(cos(q, q_past) − 1)` weighs each (SPEC §2).

    A use under another document of the tool counts with a part of its weight.
    """

    uses: int = 0
    """All recorded uses of the tool, of any weight."""
    weight: float = 0.0
    """Σ w over its judged uses."""
    helpful_weight: float = 0.0
    """Σ w·helpful over its judged uses."""
    query_weight: float = 0.0
    """Σ w over past queries that used it."""
    frequency_weight: float = 0.0
    """Σ w·F(q, t) over past queries that used it; where it never helped, F counts as at most one."""
    chance: float = 0.0
    """Share of the weight of all past queries whose task used it, 0 to 1: near queries count most."""
    chance_weight: float = 0.0
    """That weight of all past queries: how much experience there is with tasks like the new one."""
    price: Figure = field(default_factory=Figure)
    """Nano-dollars of the tool itself."""
    seconds: Figure = field(default_factory=Figure)
    step_nano: Figure = field(default_factory=Figure)
    """Nano-dollars of the model step, under the model that is asked for."""
    step_tokens: Figure = field(default_factory=Figure)
    """Tokens of the model step, under the model that is asked for."""


NO_EVIDENCE = Evidence()


def document_hash(document: ToolDocument) -> str:
    """Sixteen hex digits that change when the tool's description or parameters do."""
    text = json.dumps([document.description, document.parameters], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
