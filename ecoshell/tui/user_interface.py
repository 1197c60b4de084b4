"""The person in front of the screen, as the core knows them: where questions are asked."""

import asyncio
from typing import TYPE_CHECKING, TypeVar

from textual.containers import Vertical

from ecoshell.tui.prompt.prompt import Prompt

if TYPE_CHECKING:  # the questions are loaded when the first is asked
    from ecoshell.agent.user_interface import Approval, CostChoice, LimitChoice, Trust
    from ecoshell.events import ApprovalWanted, CostWanted, LimitHit, TrustWanted
    from ecoshell.tui.questions import Question

T = TypeVar("T")


class QuestionSpot(Vertical):
    """The person in front of the screen: questions are asked here, one at a time; without one it takes no room."""

    DEFAULT_CSS = """
    QuestionSpot { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()

    async def ask(self, question: "Question[T]") -> T:
        """The person's answer; a cancelled wait takes the question off the screen.

        While something stands in the prompt, or was typed there a moment ago, the focus stays there, so that no key
        meant for it answers the question.
        """
        prompt = self.screen.query_one(Prompt)
        async with self._turn:
            try:
                await self.mount(question)
                if question.continues or not (prompt.text or prompt.typing):
                    question.begin()
                else:
                    question.border_subtitle = "shift+tab comes here"
                return await question.answer
            finally:
                question.remove()
                prompt.focus()

    def attend(self) -> None:
        """Give the keys to the question that is asked, if there is one."""
        if self.children:
            self.children[0].focus()

    async def approve(self, wanted: "ApprovalWanted") -> "Approval":
        from ecoshell.tui.questions import ApprovalQuestion

        return await self.ask(ApprovalQuestion(wanted))

    async def at_limit(self, hit: "LimitHit") -> "LimitChoice":
        from ecoshell.tui.questions import LimitQuestion

        return await self.ask(LimitQuestion(hit))

    async def at_cost(self, wanted: "CostWanted") -> "CostChoice":
        from ecoshell.tui.questions import CostQuestion

        return await self.ask(CostQuestion(wanted))

    async def trust(self, wanted: "TrustWanted") -> "Trust":
        from ecoshell.tui.questions import TrustQuestion

        return await self.ask(TrustQuestion(wanted))
