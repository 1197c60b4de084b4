"""The tools panel: which tools are known, which are registered, and what they take of the context."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Blur, Click, Focus, Key, Paste, Resize
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from ecoshell.tui.figures import tokens
from ecoshell.tui.side.board import Board
from ecoshell.tui.side.panel import Panel
from ecoshell.tui.side.sheet import Line, bar, percent, plain, row
from ecoshell.tui.side.tool_list import ToolList, about, tool_line
from ecoshell.untrusted import visible_line

_COMFORTABLE = 14
"""Tools the panel would like to show, where there is no more room than needed."""
_AROUND = 5
"""Lines round the list: the title, three above it and a free one below."""
_ROOMY_FROM = 8
"""Lines of the panel from which on more than the list and a line above it are shown."""
_LONGEST_FILTER = 100


class ToolsPanel(Panel):
    """A list of tools between what they take of the context and what is known of the highlighted one.

    Only the lines in view are drawn, so that thousands of tools cost no more than a few.
    """

    NAME = "tools"
    HELP = (
        "● is registered: its document is in the context. ○ is known by name. Enter shows the document, space "
        "registers or unregisters, / filters, - folds the panel."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "document", "document"),
        Binding("space", "switch", "register"),
        Binding("r", "register", "register", show=False),
        Binding("u", "unregister", "unregister", show=False),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "end(-1)", "first", show=False),
        Binding("end,G", "end(1)", "last", show=False),
    ]

    class DocumentWanted(Message):
        """The person wants to read a tool's document."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class RegisterWanted(DocumentWanted):
        """The person wants a tool's document in the context."""

    class UnregisterWanted(DocumentWanted):
        """The person wants a tool's document out of the context."""

    def __init__(self, board: Board) -> None:
        self.list = ToolList()
        self._typing = False
        self._below: list[Line] = []
        super().__init__(board)

    @property
    def text(self) -> str:
        return plain([*self._lines, *(tool_line(tool, self._area.width) for tool in self.list.shown), *self._below])

    @property
    def wanted(self) -> int:
        return 1 if self.folded else _AROUND + max(1, min(len(self.list.shown), _COMFORTABLE))

    def lines(self, width: int) -> list[Line]:
        """What stands above the list."""
        standing = self.board.standing
        if standing is None:
            return [(("known once the session is open", "muted"),)]
        now, everything = self.board.context_tokens, standing.everything_tokens
        approx = "" if standing.exact else "≈ "
        used = percent(now, everything)
        drawn = bar(((now, "█"),), everything, max(0, width - len(used) - 1))
        lines: list[Line] = [
            row("context", f"{approx}{tokens(now)} of {tokens(everything)} tok", width),
            ((drawn, "accent"), (f" {used}", "text")),
        ]
        if self._area.height < _ROOMY_FROM:
            del lines[1:]
        elif self.board.saved_tokens:
            lines.append(row("saved", f"{tokens(self.board.saved_tokens)} tok so far", width))
        if self._typing or self.list.filter:
            lines.append(self._filter_line(width))
        if not self.list.shown:
            lines.append((("nothing fits" if self.list.count else "no tool is known", "muted"),))
        return lines

    def gist(self) -> str:
        return f"{self.list.registered} of {self.list.count}" if self.board.standing else ""

    def show(self) -> None:
        """Draw what is on the board now; the highlight, the filter and the place in the list stay."""
        self.list.put(self.board.tools, hold=self.has_focus)
        self._draw()

    def render_line(self, y: int) -> Strip:
        width, height = self._area
        if y < len(self._lines):
            return self.strip(self._lines[y])
        if y >= height - len(self._below):
            return self.strip(self._below[y - height])
        at = y - len(self._lines) + self.scroll_offset.y
        if at >= len(self.list.shown):
            return self.strip(())
        marked = self.has_focus and at == self.list.highlighted
        return self.strip(tool_line(self.list.shown[at], width), marked=marked)

    def action_move(self, by: int) -> None:
        """Move the highlight."""
        self._typing = False
        self.list.move(by)
        self._draw(follow=True)

    def action_page(self, by: int) -> None:
        """Move the highlight by what is in view."""
        self.action_move(by * max(1, self._room))

    def action_end(self, by: int) -> None:
        """Move the highlight to the first tool or the last."""
        self.action_move(by * len(self.list.shown))

    def action_filter(self) -> None:
        """Take what is typed from now on as a filter."""
        self._typing = True
        self._draw()

    def action_document(self) -> None:
        """Ask for the highlighted tool's document."""
        self._typing = False
        self._draw()
        if self.list.current is not None:
            self.post_message(self.DocumentWanted(self.list.current.name))

    def action_register(self) -> None:
        """Ask for the highlighted tool to be registered, unless it is."""
        tool = self.list.current
        if tool is not None and not tool.registered:
            self.post_message(self.RegisterWanted(tool.name))

    def action_unregister(self) -> None:
        """Ask for the highlighted tool to be taken out, if it is registered."""
        tool = self.list.current
        if tool is not None and tool.registered:
            self.post_message(self.UnregisterWanted(tool.name))

    def action_switch(self) -> None:
        """Ask for the highlighted tool to be registered, or taken out if it is."""
        self.action_register()
        self.action_unregister()

    def action_leave(self) -> None:
        """Take the filter away; without one, go back to where the person came from."""
        if self._typing or self.list.filter:
            self._typing = False
            self._narrow("")
        else:
            super().action_leave()

    def on_click(self, event: Click) -> None:
        """Highlight the tool under the mouse; a second click asks for its document."""
        y = event.y - 1 - len(self._lines)
        at = y + self.scroll_offset.y
        if 0 <= y < self._room and at < len(self.list.shown):
            self.list.to(at)
            self._draw()
            if event.chain > 1:
                self.action_document()

    def on_resize(self, event: Resize) -> None:
        """Set the list to the new size, the highlight in view."""
        event.prevent_default()
        self._draw(follow=self.has_focus)

    def on_focus(self, event: Focus) -> None:
        """Show what is highlighted."""
        self._draw(follow=True)

    def on_blur(self, event: Blur) -> None:
        """Put in order what was kept in its place under the person's hand."""
        self._typing = False
        self.list.sort()
        self._draw()

    def on_paste(self, event: Paste) -> None:
        """Filter by what is pasted."""
        if self._typing:
            event.stop()
            self._narrow(self.list.filter + visible_line(event.text))

    async def _on_key(self, event: Key) -> None:
        if self._typing and self._type(event):
            event.stop()
            event.prevent_default()  # else the panel's own keys follow

    def _type(self, event: Key) -> bool:
        """Let a key change the filter; says whether it did."""
        typed = self.list.filter
        if event.is_printable and event.character:
            self._narrow(typed + event.character)
        elif event.key == "backspace":
            self._typing = bool(typed)
            self._narrow(typed[:-1])
        elif event.key == "ctrl+u":
            self._narrow("")
        else:
            return False
        return True

    def _narrow(self, typed: str) -> None:
        self.list.narrow(typed[:_LONGEST_FILTER])
        self._draw(follow=True)

    def _filter_line(self, width: int) -> Line:
        fits = f" {len(self.list.shown)} fit" if self.list.filter and self.list.shown else ""
        typed = visible_line(self.list.filter) if self.list.filter.strip() else self.list.filter
        room = width - 3 - len(fits)
        cursor = "▏" if self._typing else ""
        return (("/ ", "accent"), (f"{typed[-room:] if room > 0 else ''}{cursor}", "strong"), (fits, "muted"))

    def _about(self, width: int) -> list[Line]:
        """What is said of the highlighted tool, where there is room for it."""
        tool = self.list.current
        roomy = self._area.height >= _ROOMY_FROM
        return about(tool, width) if tool is not None and self.has_focus and roomy else []

    @property
    def _room(self) -> int:
        """Tools in view."""
        return self._area.height - len(self._lines) - len(self._below)

    def _draw(self, *, follow: bool = False) -> None:
        """Draw the list as it stands; with `follow`, have the highlight in view."""
        self._show_title()
        self._area = self.scrollable_content_region.size
        self._lines = self.lines(self._area.width)
        self._below = self._about(self._area.width)
        around = self._area.height - self._room
        self.virtual_size = Size(0, around + len(self.list.shown))
        self.refresh()
        if not follow:
            return
        at, top, room = self.list.highlighted, self.scroll_offset.y, max(1, self._room)
        if not top <= at < top + room:
            self.scroll_to(y=at if at < top else at - room + 1, animate=False, force=True)
