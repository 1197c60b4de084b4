"""The part of a long column that is seen: painted when it comes near, following the end while it stands there."""

from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic, perf_counter

from textual.geometry import Size
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.widget import Widget

from ecoshell.tui.transcript.column import Column, Spot

_REPAINT = 1 / 22
"""Seconds between two paintings of what arrives, at least."""
_AHEAD = 0.1
"""Seconds of quiet before what is near the screen is painted ahead."""
_SLICE = 0.006
"""Seconds of painting ahead in one go."""


class Viewport(ScrollView):
    """A view of a column of lines; it stays at the column's end for as long as it is there."""

    news = var(False)
    """Whether something has arrived below what is seen, while the view does not follow the end."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name for it
        super().__init__(id=id)
        self._column = Column()
        self._due = self._ahead_due = self._moving = self._stale = self._arrived = False
        self._shown_at = 0.0
        self._following = True
        self._anchor: Spot | None = None
        """What stands at the top of the view while it does not follow the end."""

    @property
    def _view(self) -> range:
        """The lines on the screen."""
        return range(self.scroll_offset.y, self.scroll_offset.y + self.scrollable_content_region.height)

    @contextmanager
    def filling(self) -> Generator[None]:
        """Show nothing of what is put meanwhile until the end: for a long session that is told in one go."""
        due, self._due = self._due, True
        try:
            yield
        finally:
            self._due = due
            self._changed()

    def _changed(self, *, whole: bool = True, arrived: bool = False) -> None:
        """Show what has changed, soon, at most 22 times a second; not the whole when only text arrived."""
        self._stale = self._stale or whole
        self._arrived = self._arrived or arrived
        if not self._due:
            self._due = True
            wait = self._shown_at + _REPAINT - monotonic()
            if wait > 0:
                self.set_timer(wait, self._show)
            else:
                self.call_later(self._show)

    def _show(self) -> None:
        """Show as much as there is: the end, or what stood at the top before."""
        self._due, self._shown_at = False, monotonic()
        before = (self.scroll_offset.y, self.virtual_size)
        first, height = self._column.catch_up(), self.scrollable_content_region.height
        if self._following:
            top = self._column.reveal_end(height)
        else:
            top = self._column.line_of(self._anchor) if self._anchor else 0
            self._column.reveal(top, height)
        self._fit(top)
        if self._stale or before != (self.scroll_offset.y, self.virtual_size):
            self.refresh()
        elif first < self._view.stop:
            self.refresh_lines(first, self._view.stop - first)
        self.news = not self._following and (self.news or self._arrived)
        self._stale = self._arrived = False

    def _fit(self, top: int) -> None:
        """Take the column's height as the content's, and stand at this line of it."""
        self._moving = True
        size = Size(self.scrollable_content_region.width, self._column.height)
        if size != self.virtual_size:
            # without its watchers, which would have the whole screen laid out again for every line
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
            self._scroll_update(size)
        self.scroll_to(y=top, animate=False, immediate=True, force=True)
        self._moving = False
        self._anchor = self._column.spot(self.scroll_offset.y)
        if not self._ahead_due:
            self._ahead_due = True
            self.set_timer(_AHEAD, self._paint_ahead)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Paint what has come into view; follow the end from when it is reached until the view moves up from it."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving:
            return
        if new_value >= self.max_scroll_y:
            self._following, self.news = True, False
        elif new_value < old_value:
            self._following = False
        top, height = round(new_value), self.scrollable_content_region.height
        if self._following:
            top = self._column.reveal_end(height)
        elif 0 < old_value - new_value <= 3 * height:
            top += self._column.reveal_above(round(old_value), round(old_value) - top)[0]
        self._column.reveal(top, height)
        self._fit(top)

    def _paint_ahead(self) -> None:
        """Paint what is a screen or two away, so that scrolling finds it; the lines in view stay where they are."""
        self._ahead_due = False
        until, top, height = perf_counter() + _SLICE, self.scroll_offset.y, self.scrollable_content_region.height
        more, done = self._column.reveal_above(top, 2 * height, until)
        done = self._column.reveal(top + more, 3 * height, until) and done
        self._column.forget_far(top + more, height)
        if more or self._column.height != self.virtual_size.height:
            self._fit(top + more)
        if not done and not self._ahead_due:
            self._ahead_due = True
            self.set_timer(_REPAINT, self._paint_ahead)

    def go_to(self, line: int, *, context: int = 0) -> None:
        """Bring a line into view, with some more above it, if it is not there."""
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        if not top <= line < top + height:
            self._stand(max(0, line - context))

    def _stand(self, top: int) -> None:
        """Stand at a line, as exactly as the lines below it allow."""
        self._column.reveal(top, self.scrollable_content_region.height)
        self._fit(top)
        self._following = self.scroll_offset.y >= self.max_scroll_y
        self.news = self.news and not self._following
        self.refresh()

    def action_home(self) -> None:
        """Go to the first line."""
        self._stand(0)

    def action_end(self) -> None:
        """Go to the last line, and follow it."""
        self._following = True
        self._show()

    def action_page(self, by: int) -> None:
        """Go on or back by a page."""
        self.scroll_relative(y=by * max(1, self.scrollable_content_region.height - 1), animate=False)
