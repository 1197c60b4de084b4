"""The sessions there are: to go on with, to rename, to export and to delete."""

import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from ecoshell.agent.shell import SessionRow
from ecoshell.budget.money import about
from ecoshell.errors import EcoshellError
from ecoshell.tui.screens.picker import Aside, Picker, PickerColumn, PickerRow
from ecoshell.tui.text import money

if TYPE_CHECKING:
    from ecoshell.agent.shell import Shell

NEW = "/new"
_BEGUN = frozenset({"choose", "new", "on_highlighted"})


class SessionPicker(Picker[SessionRow]):
    """Gives back the slash command that goes on with a session, or begins one."""

    HEADING = "sessions"
    NOTHING = "There are no sessions yet: ask something, and this one will be here."
    COLUMNS = (
        PickerColumn("title"),
        PickerColumn("last used"),
        PickerColumn("model", from_width=80),
        PickerColumn("spent", right=True, from_width=56),
        PickerColumn("", from_width=40),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "go on"),
        Binding("f2,r", "on_highlighted('rename')", "rename"),
        Binding("delete,f8,d", "on_highlighted('remove')", "delete"),
        Binding("f4,e", "on_highlighted('export')", "export"),
        Binding("ctrl+n,n", "new", "new"),
    ]

    def __init__(self, shell: "Shell") -> None:
        super().__init__()
        self._shell = shell

    async def load(self) -> Sequence[SessionRow]:
        """All sessions, the last used first."""
        return await self._shell.archive.rows()

    def key(self, item: SessionRow) -> str:
        return item.info.id

    def row(self, item: SessionRow) -> PickerRow:
        info, mark = item.info, "this one" if item.current else ""
        cells = (_title(item), info.updated_text, info.model, _cost(item), mark)
        return PickerRow(cells, also=f"{info.id} {info.model} {info.workspace}")

    def detail(self, item: SessionRow) -> str:
        """The whole title, the id and the folder, and what it took."""
        info = item.info
        calls = f"{item.calls} model call{'' if item.calls == 1 else 's'}"
        return f"{_title(item)}\n{info.id} · {info.workspace}\n{calls} · {_cost(item)} · {info.model}"

    def result(self, item: SessionRow) -> str | None:
        if item.current:
            self.complain("This is the session you are in: esc goes back to it.")
            return None
        return f"/resume {item.info.id}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """One thing at a time: while something is asked, nothing else can be begun."""
        return not (action in _BEGUN and self.query_one(Aside).is_open)

    def action_new(self) -> None:
        """Begin a session."""
        self.dismiss(NEW)

    def action_on_highlighted(self, what: str) -> None:
        """Rename, delete or export, after a question."""
        act = {"rename": self._rename, "remove": self._remove, "export": self._export}[what]
        if (row := self.highlighted) is not None:
            self.run_worker(act(row, self.query_one(Aside)))

    async def _rename(self, row: SessionRow, aside: Aside) -> None:
        title = await aside.text("The session's title:", row.info.title)
        if title is not None and await self._tried(self._shell.archive.rename(row.info.id, title)):
            self.reload()

    async def _remove(self, row: SessionRow, aside: Aside) -> None:
        asked = f"Delete “{_title(row)}” and all that was said in it? It cannot be brought back."
        if row.current:
            self.complain("This is the session you are in: begin or resume another one, then delete it.")
        elif await aside.sure(asked) and await self._tried(self._shell.archive.delete(row.info.id)):
            self.reload()

    async def _export(self, row: SessionRow, aside: Aside) -> None:
        asked = "Export into a new file (.md for people, .json for programs):"
        name = await aside.text(asked, f"{row.info.id}.md")
        if name is None or not name.strip():
            return
        file = Path(os.path.expanduser(name.strip()))  # noqa: ASYNC240, PTH111 - looks at no file
        if await self._tried(self._shell.archive.export(row.info.id, file)):
            self.complain(f"Exported to {file}.")

    async def _tried(self, work: Awaitable[None]) -> bool:
        """Whether it went well; what went wrong is told."""
        try:
            await work
        except EcoshellError as error:
            self.complain(str(error))
            return False
        return True


def _cost(item: SessionRow) -> str:
    return about(money(item.spent_nano), estimated=item.estimated)


def _title(row: SessionRow) -> str:
    return row.info.title or "(no question yet)"
