"""Reads the usage from a passing reply: a stream of server-sent events, or one JSON value."""

import json
import re
from typing import Any, cast

from ecoshell_gateway.protocols.format import Format, Report

MAX_REPLY_BYTES = 64 << 20
"""Larger replies pass without their usage being read."""
_END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)
_DONE = b"[DONE]"
_MARKS = (b"usage", b"response.completed", b"response.incomplete", b"response.failed")


class EventReader:
    """Splits a stream into events and reads the reports in them.

    `drops_usage` removes the chunk with the usage that the gateway asked for and the client did not.
    """

    def __init__(self, wire: Format, *, drops_usage: bool = False) -> None:
        self.report = Report()
        self.events = 0
        self._wire = wire
        self._drops_usage = drops_usage
        self._waiting = bytearray()
        self._searched = 0
        """Where the search for the next end of an event continues."""
        self._is_reading = True

    def feed(self, piece: bytes) -> bytes:
        """Add bytes of the stream and return those to pass on."""
        if not self._is_reading:
            return piece
        self._waiting += piece
        passed = bytearray()
        at = 0
        while match := _END_OF_EVENT.search(self._waiting, max(at, self._searched)):
            event = bytes(self._waiting[at : match.end()])
            at = self._searched = match.end()
            if not self._take(event) and self._drops_usage:
                passed += event
        del self._waiting[:at]
        self._searched = max(0, len(self._waiting) - 3)
        if len(self._waiting) > MAX_REPLY_BYTES:
            self._is_reading = False
            passed += self._waiting
        return bytes(passed) if self._drops_usage else piece

    def end(self) -> bytes:
        """Return the bytes that are left when the stream has ended."""
        rest, self._waiting = bytes(self._waiting), bytearray()
        if rest and self._is_reading:
            is_usage = self._take(rest)
            return rest if self._drops_usage and not is_usage else b""
        return b""

    def _take(self, event: bytes) -> bool:
        """Read an event; returns whether to drop it."""
        self.events += 1
        if _DONE in event and _DATA.findall(event) == [_DONE]:
            self.report.is_complete = True
            return False
        if not any(mark in event for mark in _MARKS):
            return False
        fields = _json_object(b"\n".join(_DATA.findall(event)))
        return (
            fields is not None and self._wire.take_event(fields, self.report) and self._drops_usage
        )


class ReplyReader:
    """Collects a reply without streaming and reads its usage at the end."""

    def __init__(self, wire: Format) -> None:
        self.report = Report()
        self.events = 0
        self._wire = wire
        self._body = bytearray()
        self._is_reading = True

    def feed(self, piece: bytes) -> bytes:
        """Add bytes of the reply; all are passed on."""
        if self._is_reading:
            self._body += piece
            self._is_reading = len(self._body) <= MAX_REPLY_BYTES
        return piece

    def end(self) -> bytes:
        """Read the report."""
        fields = _json_object(bytes(self._body)) if self._is_reading else None
        if fields is not None:
            self._wire.take_reply(fields, self.report)
        return b""


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
