"""What can be picked: a session to go on with, a model, a theme."""

import os
from collections.abc import Awaitable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from ecoshell.budget.money import about, counted
from ecoshell.budget.price import Price, plain
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.models.base import ModelRow, size
from ecoshell.tui.screens.picker import Aside, Picker, PickerColumn, PickerRow
from ecoshell.tui.text import money, tokens
from ecoshell.tui.themes import Broken, Look, ThemedApp

if TYPE_CHECKING:
    from ecoshell.agent.shell import SessionRow, Shell

NEW = "/new"
_BEGUN = frozenset({"choose", "new", "on_highlighted"})


class SessionPicker(Picker["SessionRow"]):
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

    async def load(self) -> "Sequence[PickerRow[SessionRow]]":
        rows: list[PickerRow[SessionRow]] = []
        for item in await self._shell.archive.rows():
            info, mark = item.info, "this one" if item.current else ""
            cells = (_title(item), info.updated_text, info.model, _cost(item), mark)
            rows.append(PickerRow(item, info.id, cells, also=f"{info.id} {info.model} {info.workspace}"))
        return rows

    def detail(self, item: "SessionRow") -> str:
        """The whole title, the id and the folder, and what it took."""
        info = item.info
        calls = counted(item.calls, "model call")
        return f"{_title(item)}\n{info.id} · {info.workspace}\n{calls} · {_cost(item)} · {info.model}"

    def result(self, item: "SessionRow") -> str | None:
        if item.current:
            self.complain("This is the session you are in: esc goes back to it.")
            return None
        return f"/resume {item.info.id}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """One thing at a time: while something is asked, nothing else can be begun."""
        return not (action in _BEGUN and self.query_one(Aside).is_open)

    def action_new(self) -> None:
        self.dismiss(NEW)

    def action_on_highlighted(self, what: str) -> None:
        act = {"rename": self._rename, "remove": self._remove, "export": self._export}[what]
        if (row := self.highlighted) is not None:
            self.run_worker(act(row, self.query_one(Aside)))

    async def _rename(self, row: "SessionRow", aside: Aside) -> None:
        title = await aside.text("The session's title:", row.info.title)
        if title is not None and await self._tried(self._shell.archive.rename(row.info.id, title)):
            self.reload()

    async def _remove(self, row: "SessionRow", aside: Aside) -> None:
        asked = f"Delete “{_title(row)}” and all that was said in it? It cannot be brought back."
        if row.current:
            self.complain("This is the session you are in: begin or resume another one, then delete it.")
        elif await aside.sure(asked) and await self._tried(self._shell.archive.delete(row.info.id)):
            self.reload()

    async def _export(self, row: "SessionRow", aside: Aside) -> None:
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


def _cost(item: "SessionRow") -> str:
    return about(money(item.spent_nano), estimated=item.estimated)


def _title(row: "SessionRow") -> str:
    return row.info.title or "(no question yet)"


IN_USE = "in use"


class ModelPicker(Picker[ModelRow]):
    """Gives back the slash command that changes the model."""

    HEADING = "models"
    COLUMNS = (
        PickerColumn("model"),
        PickerColumn("where", from_width=90),
        PickerColumn("in $/M", right=True),
        PickerColumn("out $/M", right=True),
        PickerColumn("context", right=True, from_width=70),
        PickerColumn("state"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "use it")]

    def __init__(self, shell: "Shell") -> None:
        super().__init__()
        self._shell = shell

    async def load(self) -> Sequence[PickerRow[ModelRow]]:
        self.first = (await self._shell.standing()).model
        return [self._listed(item, item.name == self.first) for item in await self._shell.models()]

    def _listed(self, item: ModelRow, current: bool) -> PickerRow[ModelRow]:
        state = IN_USE if current else item.state
        size = tokens(item.context) if item.context else "?"
        cells = (item.name, item.place or item.provider, *_rates(item.price), size, state)
        also = f"{item.provider} {item.place} {state}"
        return PickerRow(item, item.name, cells, also, common=item.at_hand or current)

    def detail(self, item: ModelRow) -> str:
        """The whole name, the price with what is cached, and what is missing or else the sizes and the file."""
        price = "price unknown: a cap in dollars refuses it" if item.price is None else item.price.summary()
        source = f" ({item.price.source})" if item.price and item.price.source else ""
        context = f"context {item.context:,}" if item.context else "context unknown"
        most = f" · answers up to {item.max_output:,} tokens" if item.max_output else ""
        sizes = " · ".join(part for part in (f"{context}{most}", size(item.size_bytes), str(item.path or "")) if part)
        trouble = f"blocked: {item.barred}" if item.barred else item.missing
        return f"{item.name}\n{price}{source}\n{trouble or sizes}"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a key is asked for, nothing else can be chosen."""
        return not (action == "choose" and self.query_one(Aside).is_open)

    def result(self, item: ModelRow) -> str | None:
        if item.ready is False and item.kind == "remote":
            self.run_worker(self._ask_for_key(item), group="key", exclusive=True)
            return None
        if item.ready is False:
            self.complain(f"{item.name} cannot be asked yet: {item.state}.\n{item.missing}")
            return None
        return f"/model {item.name}"

    async def _ask_for_key(self, item: ModelRow) -> None:
        """Have the provider's key typed, store it, and take the model."""
        asked = f"{item.name} needs a key of {item.provider}. Paste it; it goes to the system's keyring (esc: back)."
        key = await self.query_one(Aside).text(f"{asked}\nOr: {item.missing}", secret=True)
        if not key:
            return
        try:
            await self._shell.keep_key(item.provider, key)
        except StoreError as error:
            self.notify(str(error), severity="warning", timeout=20, markup=False)
        except UsageError as error:
            self.complain(str(error))
            return
        self.dismiss(f"/model {item.name}")


def _rates(price: Price | None) -> tuple[str, str]:
    """What a million tokens cost, in and out."""
    if price is None:
        return "?", "?"
    if price.summary() == "free":
        return "free", "free"
    return _rate(price.rates.input), _rate(price.rates.output)


def _rate(rate: Decimal) -> str:
    """Four digits say enough of a price in a list."""
    return plain(Decimal(f"{rate:.4g}"))


NO_COLOR = "No colour is sent: NO_COLOR is set, or the terminal has none. What you pick is worn where there is colour."


class ThemePicker(Picker[Look | Broken]):
    """All themes; the highlighted one is worn by the whole app, esc puts back the one before."""

    HEADING = "theme"
    COLUMNS = (PickerColumn("theme"), PickerColumn("kind"))
    NOTHING = "There are no themes."
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "keep it")]
    HELP = (
        "Each theme is worn while it is highlighted. Enter keeps it in the settings, esc goes back to the one before."
    )
    DEFAULT_CSS = """
    ThemePicker {
        align: right top;
        background: transparent;
        & > Vertical, &.-narrow > Vertical { width: 38; height: 100%; }
        #detail { height: 6; }
    }
    """
    app: ThemedApp[int]

    def __init__(self, current: str) -> None:
        super().__init__()
        self._worn = self.first = current
        """What is on when the picker closes."""

    async def load(self) -> Sequence[PickerRow[Look | Broken]]:
        themes = await self.app.learn_themes()
        rows: list[PickerRow[Look | Broken]] = []
        for theme in sorted(themes.all, key=lambda theme: theme.name):
            kind = "no colour" if theme.colorless else "dark" if theme.dark else "light"
            rows.append(PickerRow(theme, theme.name, (theme.name, kind)))
        for broken in themes.broken:  # it may bear the name of one that works
            name = f"{broken.file.stem} ×"
            rows.append(PickerRow(broken, name, (name, "cannot be used")))
        return rows

    def detail(self, item: Look | Broken) -> str:
        if isinstance(item, Broken):
            return f"{item.reason}\n{item.file}"
        return NO_COLOR if self.app.forced_mono else ""

    def preview(self, item: Look | Broken) -> None:
        """Wear it; the one before, while it is none that works."""
        self.app.wear(item.name if isinstance(item, Look) else self._worn)

    def result(self, item: Look | Broken) -> str | None:
        if isinstance(item, Broken):
            return None
        self._worn = item.name
        return item.name

    def on_unmount(self) -> None:
        """Wear what was picked, or what was worn before."""
        self.app.wear(self._worn)
