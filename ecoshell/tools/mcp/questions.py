"""A server's questions to the user during a call, and the time limits that they suspend."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

MAX_TEXT = 200_000  # maximum characters of a result; the tool's own limit is usually lower
_MAX_QUESTIONS = 20  # maximum number of questions per call; further ones are declined
_MAX_FORM_CHARS, _MAX_URL_CHARS = 20_000, 2_000

Record = Mapping[str, Any]


class Questions:
    """Sends questions to the shell and receives its answers."""

    def __init__(self, write: Callable[[Record], None]) -> None:
        self._write = write
        self._count = 0  # number of questions since the last request started
        self._timeouts: dict[asyncio.Timeout, float] = {}
        """Timeouts of running requests, with the seconds that remained when a question suspended them."""
        self._answers: dict[int, asyncio.Future[Record]] = {}
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncGenerator[None]:
        """Limit a request to this time, without the time of questions; raises TimeoutError."""
        self._count = 0
        async with asyncio.timeout(seconds) as timeout:
            self._timeouts[timeout] = seconds
            try:
                yield
            finally:
                del self._timeouts[timeout]

    def receive(self, record: Record) -> None:
        """Take an answer of the shell."""
        answer = self._answers.get(record["answer"])
        if answer is not None and not answer.done():
            answer.set_result(record["value"])

    async def ask(self, question: Record) -> Record:
        """Return the shell's answer to a question of the server, empty if none; timeouts are suspended meanwhile."""
        self._count += 1
        if self._count > _MAX_QUESTIONS:
            return {}
        number, loop = next(self._numbers), asyncio.get_running_loop()
        answer = self._answers[number] = loop.create_future()
        for timeout in self._timeouts:
            if not timeout.expired() and (end := timeout.when()) is not None:
                self._timeouts[timeout] = end - loop.time()
                timeout.reschedule(None)
        self._write({"ask": number, **question})
        try:
            return await answer
        finally:
            del self._answers[number]
            if not answer.done() or answer.cancelled():
                self._write({"ask": number, "withdrawn": True})
            for timeout, seconds in self._timeouts.items() if not self._answers else ():
                if not timeout.expired() and timeout.when() is None:
                    timeout.reschedule(loop.time() + seconds)

    async def elicit(self, context: Any, params: Any) -> Any:
        """The SDK's callback for forms and pages that the user fills in or visits."""
        from mcp_types import ElicitResult

        is_page = params.mode == "url"
        question = {"visit": params.url} if is_page else {"form": params.requested_schema}
        if len(json.dumps(question)) > (_MAX_URL_CHARS if is_page else _MAX_FORM_CHARS):
            return ElicitResult(action="decline")
        answer = await self.ask({**question, "message": params.message[:MAX_TEXT]})
        return ElicitResult(action=answer.get("action", "decline"), content=answer.get("content"))

    async def sample(self, context: Any, params: Any) -> Any:
        """The SDK's callback for requests to the session's model."""
        from mcp_types import INVALID_REQUEST, CreateMessageResult, ErrorData, TextContent

        def refusal(message: str) -> ErrorData:
            return ErrorData(code=INVALID_REQUEST, message=message)

        messages = [("system", params.system_prompt)] if params.system_prompt else []
        for message in params.messages:
            blocks = message.content_as_list
            if any(block.type != "text" for block in blocks):
                return refusal("Sampling supports text only.")
            messages.append((message.role, "\n".join(block.text for block in blocks)))
        if sum(len(text) for _, text in messages) > MAX_TEXT:
            return refusal(f"Sampling is limited to {MAX_TEXT:,} characters.")
        answer = await self.ask({"sample": messages, "max_tokens": params.max_tokens})
        if "text" not in answer:
            return refusal(answer.get("error", "It was declined."))
        return CreateMessageResult(
            role="assistant",
            content=TextContent(type="text", text=answer["text"]),
            model=answer["model"],
            stop_reason="maxTokens" if answer["cut"] else "endTurn",
        )
