"""The tool ask_advisor, offered while a session has an advisor."""

from typing import Annotated

from ecoshell.errors import ToolError
from ecoshell.tools.function import FunctionTool
from ecoshell.tools.tool import Limits, caller

ASK_ADVISOR = "ask_advisor"
_SECONDS = 600.0


class AdvisorTool(FunctionTool):
    """Asks the stronger model that the user chose."""

    def __init__(self) -> None:
        super().__init__(ask_advisor, effects=(), limits=Limits(_SECONDS), name=ASK_ADVISOR)


async def ask_advisor(
    question: Annotated[
        str, "What to decide, with the facts that matter; it also sees what was done so far."
    ],
) -> str:
    """Ask a stronger, dearer model at a decision point or when stuck; it advises and calls no tools."""
    running = caller.get()
    if running is None:
        raise ToolError("No advisor is available here.")
    return await running.advise(question)
