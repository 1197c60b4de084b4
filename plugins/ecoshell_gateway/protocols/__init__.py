"""The wire formats of providers: what a request asks for, and what a reply reports."""

from ecoshell_gateway.protocols.chat import Chat
from ecoshell_gateway.protocols.format import Format, Report, RequestFacts
from ecoshell_gateway.protocols.messages import Messages
from ecoshell_gateway.protocols.responses import Responses

CHAT = Chat()
RESPONSES = Responses()
MESSAGES = Messages()

__all__ = ["CHAT", "MESSAGES", "RESPONSES", "Format", "Report", "RequestFacts"]
