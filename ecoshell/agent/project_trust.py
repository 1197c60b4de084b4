"""Asks the user whether files of the workspace may be used: instructions, commands, skills and hooks."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ecoshell.agent import NonInteractive, UserInterface
from ecoshell.agent.project_rules import ProjectRules
from ecoshell.errors import StoreError
from ecoshell.events import Emit, Notice, TrustGiven, TrustWanted
from ecoshell.secrecy import mask_secrets
from ecoshell.tools.workspace import Workspace


@dataclass(slots=True, eq=False)
class ProjectTrust:
    """Decides whether a file of the workspace is trusted: by the settings, by an earlier decision, or by asking."""

    workspace: Workspace
    projects: ProjectRules
    """Stores the decisions."""
    policy: Literal["ask", "trust", "off"] = "ask"
    _decisions: dict[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])
    """Decisions in this process by file and text; they apply even if they cannot be stored."""
    _postponed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Files and texts about which the user decides later."""

    def decision(self, file: str, text: str) -> tuple[bool | None, bool]:
        """The decision about this text, None without one, and whether there is one about another text.

        Asks nothing; may block. Raises StoreError.
        """
        if self.policy != "ask":
            return self.policy == "trust", False
        decision, has_changed = self.projects.trusts(self.workspace.root, text, file=file)
        return self._decisions.get((file, text), decision), has_changed

    async def allows(
        self,
        file: str,
        text: str,
        user: UserInterface,
        emit: Emit,
        *,
        use: Literal["follow", "run"] = "follow",
        once: bool = False,
    ) -> bool:
        """Whether the file, a path relative to the workspace, is trusted with this text; asks the user if needed.

        With `once`, a decision that the user postpones counts for the rest of the process.
        """
        try:
            decision, has_changed = await asyncio.to_thread(self.decision, file, text)
        except StoreError as error:
            emit(Notice(str(error)))
            decision, has_changed = self._decisions.get((file, text)), False
        if decision is None and not (once and (file, text) in self._postponed):
            question = TrustWanted(str(self.workspace.root / file), text, has_changed, use)
            return await self._ask(question, file, user, emit)
        return bool(decision)

    async def _ask(self, question: TrustWanted, file: str, user: UserInterface, emit: Emit) -> bool:
        """Ask the user and store the decision."""
        masked = mask_secrets(question)
        emit(masked)
        word, is_present = await user.trust(masked), not isinstance(user, NonInteractive)
        emit(TrustGiven(word, "person" if is_present else "nobody", file))
        if not is_present:
            reason = "no user is present who could trust it. --trust-project reads it."
            emit(Notice(f"{file} of this project was not read, because {reason}"))
        if word == "later":
            self._postponed.add((file, question.text))
            return False
        trusted = self._decisions[file, question.text] = word == "yes"
        store = partial(self.projects.trust, trusted=trusted, file=file)
        try:
            await asyncio.to_thread(store, self.workspace.root, question.text)
        except StoreError as error:
            emit(Notice(str(error)))
        return trusted
