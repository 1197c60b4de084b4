"""What can be picked: a session to go on with, a model, a theme."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import OptionList

from ecoshell.budget import about, counted, plain
from ecoshell.errors import EcoshellError, StoreError, UsageError
from ecoshell.models import ModelRow, size_text
from ecoshell.tui.screens.picker import Aside, Picker, PickerColumn, PickerRow
from ecoshell.tui.text import money, tokens
from ecoshell.tui.themes import Broken, Look, ThemedApp

if TYPE_CHECKING:
    from ecoshell.agent.shell import SessionRow, Shell

NEW = "/new"


class SessionPicker(Picker["SessionRow"]):
    """Gives back the slash command that goes on with a session, or begins one."""

    heading = "sessions"
    ASKED_ALONE = frozenset({"choose", "new", "on_highlighted"})
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
            title = info.title or "(no question yet)"
            cost = about(money(item.spent_nano), estimated=item.estimated)
            cells = (title, info.updated_text, info.model, cost, mark)
            took = f"{counted(item.calls, 'model call')} · {cost} · {info.model}"
            detail = f"{title}\n{info.id} · {info.workspace}\n{took}"
            rows.append(PickerRow(item, info.id, cells, f"{info.id} {info.model} {info.workspace}", detail=detail))
        return rows

    def result(self, item: "SessionRow") -> str | None:
        if item.current:
            self.complain("This is the session you are in: esc goes back to it.")
            return None
        return f"/resume {item.info.id}"

    def action_new(self) -> None:
        self.dismiss(NEW)

    @work
    async def action_on_highlighted(self, what: Literal["rename", "remove", "export"]) -> None:
        """Ask what has to be known, and do it; what went wrong is told."""
        highlighted, aside, archive = self.highlighted, self.query_one(Aside), self._shell.archive
        if highlighted is None:
            return
        row, title = highlighted.item, highlighted.cells[0]
        try:
            if what == "rename":
                named = await aside.ask("The session's title:", row.info.title)
                if named is not None:
                    await archive.rename(row.info.id, named)
                    self.reload()
            elif what == "export":
                asked = "Export into a new file (.md for people, .json for programs):"
                name = await aside.ask(asked, f"{row.info.id}.md")
                if name is not None and name.strip():
                    file = archive.file(name)
                    await archive.export(row.info.id, file)
                    self.complain(f"Exported to {file}.")
            elif row.current:
                self.complain("This is the session you are in: begin or resume another one, then delete it.")
            elif await aside.ask(f"Delete “{title}” and all that was said in it? It cannot be brought back."):
                await archive.delete(row.info.id)
                self.reload()
        except EcoshellError as error:
            self.complain(str(error))


IN_USE = "in use"


class ModelPicker(Picker[ModelRow]):
    """Gives back the slash command that changes the model."""

    heading = "models"
    COLUMNS = (
        PickerColumn("model"),
        PickerColumn("where", from_width=90),
        PickerColumn("in $/M", right=True),
        PickerColumn("out $/M", right=True),
        PickerColumn("context", right=True, from_width=70),
        PickerColumn("state"),
    )
    ASKED_ALONE = frozenset({"choose"})
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "use it")]

    def __init__(self, shell: "Shell") -> None:
        super().__init__()
        self._shell = shell

    async def load(self) -> Sequence[PickerRow[ModelRow]]:
        self.first = (await self._shell.standing()).model
        rows: list[PickerRow[ModelRow]] = []
        for item in await self._shell.models():
            current = item.name == self.first
            state = IN_USE if current else item.state
            into, out, told = "?", "?", "price unknown: a cap in dollars refuses it"
            if item.price is not None:
                told = item.price.summary()
                rates = (item.price.rates.input, item.price.rates.output)
                # four digits say enough of a price in a list
                into, out = ("free", "free") if told == "free" else (plain(Decimal(f"{rate:.4g}")) for rate in rates)
                told += f" ({item.price.source})" if item.price.source else ""
            cells = (
                item.name, item.place or item.provider, into, out, tokens(item.context) if item.context else "?", state,
            )  # fmt: skip
            most = f" · answers up to {item.max_output:,} tokens" if item.max_output else ""
            sizes = (
                f"context {item.context:,}{most}" if item.context else f"context unknown{most}",
                size_text(item.size_bytes),
                str(item.path or ""),
            )
            trouble = f"blocked: {item.blocked}" if item.blocked else item.missing
            detail = f"{item.name}\n{told}\n{trouble or ' · '.join(filter(None, sizes))}"
            also = f"{item.provider} {item.place} {state}"
            rows.append(PickerRow(item, item.name, cells, also, item.at_hand or current, detail))
        return rows

    def result(self, item: ModelRow) -> str | None:
        if item.ready is False and item.kind == "remote":
            self._ask_for_key(item)
            return None
        if item.ready is False:
            self.complain(f"{item.name} cannot be asked yet: {item.state}.\n{item.missing}")
            return None
        return f"/model {item.name}"

    @work(group="key", exclusive=True)
    async def _ask_for_key(self, item: ModelRow) -> None:
        """Have the provider's key typed, store it, and take the model."""
        asked = f"{item.name} needs a key of {item.provider}. Paste it; it goes to the system's keyring (esc: back)."
        key = await self.query_one(Aside).ask(f"{asked}\nOr: {item.missing}", "", secret=True)
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


NO_COLOR = "No colour is sent: NO_COLOR is set, or the terminal has none. What you pick is worn where there is colour."


class ThemePicker(Picker[Look | Broken]):
    """All themes; the highlighted one is worn by the whole app, esc puts back the one before."""

    heading = "theme"
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
            detail = NO_COLOR if self.app.forced_mono else ""
            rows.append(PickerRow(theme, theme.name, (theme.name, kind), detail=detail))
        for broken in themes.broken:  # it may bear the name of one that works
            name = f"{broken.file.stem} ×"
            detail = f"{broken.reason}\n{broken.file}"
            rows.append(PickerRow(broken, name, (name, "cannot be used"), detail=detail))
        return rows

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Wear what is highlighted; the one before, while it is none that works."""
        if self.highlighted is not None:
            item = self.highlighted.item
            self.app.wear(item.name if isinstance(item, Look) else self._worn)

    def result(self, item: Look | Broken) -> str | None:
        if isinstance(item, Broken):
            return None
        self._worn = item.name
        return item.name

    def on_unmount(self) -> None:
        """Wear what was picked, or what was worn before."""
        self.app.wear(self._worn)
