"""Sessions: their events in SQLite, the state of their tool graphs, and exports."""

from ecoshell.sessions.lock import SessionLock
from ecoshell.sessions.log import EventLog
from ecoshell.sessions.store import SessionInfo, SessionStore

__all__ = ["EventLog", "SessionInfo", "SessionLock", "SessionStore"]
