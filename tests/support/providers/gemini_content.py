"""An emulator of Gemini's generateContent and streamGenerateContent (AI Studio)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from providers.media import IMAGE_TOKENS, IMAGE_TYPES, decoded, sniffed_type
from providers.script import (
    Prompt,
    PromptMessage,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolSearch,
    merged,
    output_tokens,
    token_count,
)
from providers.server import (
    Body,
    Emulator,
    Model,
    PrefixCache,
    Rejected,
    canonical,
    entries,
    is_body,
    is_entries,
    padded,
    pieces,
    section,
)

_PATH = re.compile(r"(?:/v1beta)?/models/([^:/]+):(generateContent|streamGenerateContent)")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_FIELDS = frozenset(
    {
        "contents",
        "system_instruction",
        "systemInstruction",
        "tools",
        "toolConfig",
        "tool_config",
        "safetySettings",
    }
    | {"safety_settings", "generationConfig", "generation_config", "cachedContent", "labels"}
)
_PART_FIELDS = frozenset(
    {"text", "thought", "thoughtSignature", "inlineData", "functionCall", "functionResponse"}
)
_SKIP_SIGNATURES = frozenset(
    {"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", "skip_thought_signature_validator"}
)
"""What Google documents for calls that come from another model."""
_FINISHES = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class GeminiContent(Emulator):
    """`POST /models/NAME:generateContent` and `:streamGenerateContent?alt=sse`.

    Stricter than the real service in one point: the signature that skips validation is not accepted for a call that
    this emulator signed, so that a client which lost a signature is noticed.
    """

    key_header = "x-goog-api-key"
    models: ClassVar[Mapping[str, Model]] = {
        "gemini-2.5-pro": Model(1_048_576, 65_536, "budget", cache_minimum=4096),
        "gemini-3-flash-preview": Model(
            1_048_576, 65_536, "level", ("minimal", "low", "medium", "high")
        ),
        "gemini-3.1-pro-preview": Model(
            1_048_576, 65_536, "level", ("low", "medium", "high"), 4096
        ),
    }

    def __init__(self, models: Mapping[str, Model] | None = None) -> None:
        super().__init__(models)
        self._signed: dict[str, str] = {}
        """The signature of each call that was signed, by the call's ID."""
        self._cache = PrefixCache()

    # -- the request

    def read(self, path: str, body: Body) -> Prompt:
        route = _PATH.fullmatch(path.partition("?")[0])
        if route is None:
            raise Rejected("Requested entity was not found.", status=404, kind="NOT_FOUND")
        name = route[1]
        model = self.model(name)
        for field in body:
            if field not in _FIELDS:
                raise Rejected(
                    f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.'
                )
        config: Body = _camel(
            section(body, "generationConfig") or section(body, "generation_config")
        )
        limit = self._check_config(config, model)
        tools = self._check_tools(body)
        contents: list[Body] = [_camel(content) for content in entries(body, "contents")]
        self._check_contents(contents)
        for index, content in enumerate(contents):
            for place, part in enumerate(content["parts"]):
                self._check_part(f"contents[{index}].parts[{place}]", content["role"], part)
        self._check_turns(contents)
        self._check_signatures(contents, model)
        total = token_count(_prompt_text(body))
        if total > model.context:
            raise Rejected(
                f"The input token count ({total}) exceeds the maximum number of tokens allowed ({model.context})."
            )
        thinking = section(config, "thinkingConfig")
        return Prompt(
            number=self.next_number,
            body={**body, "contents": contents, "generationConfig": config},
            model=name,
            tools=tools,
            messages=merged(_prompt_messages(body, contents)),
            max_output_tokens=limit,
            is_reasoning=thinking.get("thinkingBudget") != 0,
        )

    def unknown_model(self, name: str) -> str:
        return (
            f"models/{name} is not found for API version v1beta, or is not supported for generateContent. Call "
            "ListModels to see the list of available models and their supported methods."
        )

    def _check_config(self, config: Body, model: Model) -> int:
        limit = config.get("maxOutputTokens") or model.max_output
        if not 1 <= limit <= model.max_output:
            raise Rejected(
                f"Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range "
                f"is from 1 (inclusive) to {model.max_output + 1} (exclusive). Update the value and try again."
            )
        thinking = section(config, "thinkingConfig")
        budget, level = thinking.get("thinkingBudget"), thinking.get("thinkingLevel")
        if budget is not None and level is not None:
            raise Rejected("You can only set only one of thinking budget and thinking level.")
        if level is not None and level not in model.efforts:
            raise Rejected(f"Thinking level {str(level).upper()} is not supported for this model.")
        if budget == 0:
            raise Rejected("Budget 0 is invalid. This model only works in thinking mode.")
        if not 0 <= config.get("temperature", 1) <= 2:
            raise Rejected(
                "Unable to submit request because the temperature is outside of the range from 0 to 2."
            )
        return limit

    def _check_tools(self, body: Body) -> tuple[str, ...]:
        names: list[str] = []
        for index, tool in enumerate(entries(body, "tools")):
            for place, declaration in enumerate(entries(_camel(tool), "functionDeclarations")):
                name = declaration["name"]
                if not _NAME.fullmatch(name):
                    raise Rejected(
                        f"* GenerateContentRequest.tools[{index}].function_declarations[{place}].name: Invalid "
                        "function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
                        "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
                    )
                if name in names:
                    raise Rejected(f"Duplicate function declaration found: {name}")
                names.append(name)
        return tuple(names)

    def _check_contents(self, contents: list[Body]) -> None:
        if not contents:
            raise Rejected("* GenerateContentRequest.contents: contents is not specified")
        for index, content in enumerate(contents):
            if content.get("role") not in ("user", "model"):
                raise Rejected("Please use a valid role: user, model.")
            if not content.get("parts"):
                raise Rejected(
                    f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty."
                )
        if contents[-1]["role"] != "user":
            raise Rejected(
                "Please ensure that multiturn requests end with a user role or a function response."
            )

    def _check_part(self, place: str, role: str, part: Body) -> None:
        for name in part:
            if name not in _PART_FIELDS:
                raise Rejected(
                    f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
                )
        data = set(part) & {"text", "inlineData", "functionCall", "functionResponse"}
        if len(data) != 1:
            raise Rejected(
                f"* GenerateContentRequest.{place}.data: required oneof field 'data' must have one field"
            )
        required_role = {
            "functionCall": "model",
            "functionResponse": "user",
            "inlineData": "user",
        }.get(next(iter(data)))
        if required_role not in (None, role):
            raise Rejected(
                f"* GenerateContentRequest.{place}: {next(iter(data))} is not allowed with role {role}"
            )
        if "inlineData" in part:
            _check_image(part["inlineData"])
        if "functionResponse" in part:
            for inner in part["functionResponse"].get("parts") or ():
                _check_image(_camel(inner)["inlineData"])
        if (call := part.get("functionCall")) and not _NAME.fullmatch(call["name"]):
            raise Rejected(
                f"* GenerateContentRequest.{place}.function_call.name: Invalid function name."
            )

    def _check_turns(self, contents: list[Body]) -> None:
        """Function calls come right after a user or response turn, and are answered by the very next turn, in order."""
        for index, content in enumerate(contents):
            calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            results = [
                part["functionResponse"] for part in content["parts"] if "functionResponse" in part
            ]
            previous = entries(contents[index - 1], "parts") if index else []
            expected = [part["functionCall"] for part in previous if "functionCall" in part]
            if calls and (index == 0 or contents[index - 1]["role"] != "user"):
                raise Rejected(
                    "Please ensure that function call turn comes immediately after a user turn or after a function "
                    "response turn."
                )
            identifiers = [call["id"] for call in calls if "id" in call]
            if len(set(identifiers)) < len(identifiers):
                raise Rejected("Please ensure that function call IDs are unique within a turn.")
            if results and not expected:
                raise Rejected(
                    "Please ensure that function response turn comes immediately after a function call turn."
                )
            if len(results) != len(expected):
                raise Rejected(
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
            for call, result in zip(expected, results, strict=True):
                if call["name"] != result["name"] or call.get("id") != result.get("id"):
                    raise Rejected(
                        f"Function response for `{result['name']}` ({result.get('id')}) does not match the function "
                        f"call `{call['name']}` ({call.get('id')}) in its place."
                    )
        if any("functionCall" in part for part in contents[-1]["parts"]):
            raise Rejected(
                "Please ensure that function call turn is followed by a function response turn."
            )

    def _check_signatures(self, contents: list[Body], model: Model) -> None:
        """The first function call of each step of the current turn carries its signature; no signature is altered."""
        start = max(
            (
                index
                for index, item in enumerate(contents)
                if item["role"] == "user"
                and all("functionResponse" not in part for part in item["parts"])
            ),
            default=0,
        )
        for index, content in enumerate(contents):
            if content["role"] != "model":
                continue
            is_first = True
            for place, part in enumerate(content["parts"]):
                signature = part.get("thoughtSignature")
                call = part.get("functionCall")
                issued = self._signed.get(section(part, "functionCall").get("id", ""))
                is_skipped = signature in _SKIP_SIGNATURES and not issued
                if signature is not None and signature not in _SKIP_SIGNATURES:
                    self._check_signature(content, part, signature)
                is_needed = model.reasoning == "level" and index > start and call and is_first
                if is_needed and not (
                    is_skipped or (signature and signature not in _SKIP_SIGNATURES)
                ):
                    raise Rejected(
                        "Function call is missing a thought_signature in functionCall parts. This is required for "
                        "tools to work correctly, and missing thought_signature may lead to degraded model "
                        f"performance. Additional data, function call `default_api:{call['name']}` , position "
                        f"{place + 1}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for "
                        "more details."
                    )
                is_first = is_first and not call

    def _check_signature(self, content: Body, part: Body, signature: object) -> None:
        call = part.get("functionCall")
        if not self.is_signed(
            signature, _signed_call(call) if call else _answer_text(content["parts"])
        ):
            raise Rejected("Corrupted thought signature.")

    # -- the answer

    def usage(self, prompt: Prompt, reply: Reply) -> Body:
        text = _prompt_text(prompt.body)
        shared = self._cache.shared_tokens(prompt.model, text)
        total, reasoning = output_tokens(reply)
        tokens = token_count(text)
        images = sum(message.images for message in prompt.messages) * IMAGE_TOKENS
        details = [{"modality": "TEXT", "tokenCount": tokens - images}]
        usage: Body = {
            "promptTokenCount": tokens,
            "candidatesTokenCount": total - reasoning,
            "totalTokenCount": tokens + total,
            "promptTokensDetails": details
            + ([{"modality": "IMAGE", "tokenCount": images}] if images else []),
        }
        if reasoning:
            usage["thoughtsTokenCount"] = reasoning
        if shared >= self.known_models[prompt.model].cache_minimum:
            usage["cachedContentTokenCount"] = shared
            usage["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": shared}]
        return usage

    def message(self, prompt: Prompt, reply: Reply, usage: Body) -> Body:
        shows_thoughts = section(prompt.body["generationConfig"], "thinkingConfig").get(
            "includeThoughts"
        )
        model = self.known_models[prompt.model]
        thought = any(isinstance(part, Reasoning) for part in reply.parts)
        parts: list[Body] = []
        is_signed = False
        for index, part in enumerate(reply.parts):
            match part:
                case Reasoning(text):
                    if shows_thoughts:
                        parts.append({"text": text, "thought": True})
                case Text(text):
                    parts.append({"text": text})
                case ToolCall(name, arguments, id=given):
                    call: Body = {"name": name, "args": dict(arguments)}
                    if model.reasoning == "level":
                        call["id"] = given or self.identifier("", prompt.number, index)[:8]
                    parts.append({"functionCall": call})
                    if not is_signed and (thought or model.reasoning == "level"):
                        is_signed = True
                        parts[-1]["thoughtSignature"] = self.sign(_signed_call(call))
                        self._signed[call.get("id", "")] = parts[-1]["thoughtSignature"]
                case ToolSearch():
                    raise AssertionError("Gemini has no tool search")
                case other:
                    parts.append(dict(other.fields))
        if (
            not reply.calls
            and thought
            and parts
            and "text" in parts[-1]
            and "thought" not in parts[-1]
        ):
            parts[-1]["thoughtSignature"] = self.sign(_answer_text(parts))
        finish = _FINISHES.get(reply.finish, reply.finish) if reply.finish else "STOP"
        content = {"role": "model", "parts": parts}
        return {
            "candidates": [{"content": content, "finishReason": finish, "index": 0}],
            "usageMetadata": usage,
            "modelVersion": prompt.model,
            "responseId": self.identifier("", prompt.number),
        }

    def events(self, prompt: Prompt, reply: Reply, message: Body) -> Iterator[Body]:
        head = {"modelVersion": message["modelVersion"], "responseId": message["responseId"]}
        usage = message["usageMetadata"]
        so_far = {
            "promptTokenCount": usage["promptTokenCount"],
            "totalTokenCount": usage["promptTokenCount"],
        }

        def event(parts: list[Body], finish: str | None = None) -> Body:
            candidate: Body = {"content": {"role": "model", "parts": parts}, "index": 0}
            if finish:
                candidate["finishReason"] = finish
            return {"candidates": [candidate], "usageMetadata": usage if finish else so_far, **head}

        candidate = message["candidates"][0]
        for part in candidate["content"]["parts"]:
            if "text" not in part:
                yield event([part])
                continue
            for piece in pieces(part["text"]):
                yield event([{"text": piece, **({"thought": True} if "thought" in part else {})}])
            if "thoughtSignature" in part:
                yield event([{"text": "", "thoughtSignature": part["thoughtSignature"]}])
        yield event([{"text": ""}], candidate["finishReason"])

    def is_streaming(self, path: str, body: Body) -> bool:
        return ":streamGenerateContent" in path

    def is_reasoning_event(self, event: Body) -> bool:
        return any(part.get("thought") for part in event["candidates"][0]["content"]["parts"])

    def error(self, rejected: Rejected) -> Body:
        statuses = {
            400: "INVALID_ARGUMENT",
            401: "UNAUTHENTICATED",
            404: "NOT_FOUND",
            429: "RESOURCE_EXHAUSTED",
        }
        status = statuses.get(
            rejected.status, "UNAVAILABLE" if rejected.status == 503 else "INTERNAL"
        )
        return {"error": {"code": rejected.status, "message": rejected.message, "status": status}}

    def error_event(self) -> Body:
        return {
            "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
        }


def _signed_call(call: Body) -> str:
    return canonical([call["name"], section(call, "args")])


def _answer_text(parts: list[Body]) -> str:
    """The text of a message: one signature covers all of it, as a stream sends it in a last, empty part."""
    return "".join(part.get("text", "") for part in parts if not part.get("thought"))


def _check_image(inline: Body) -> None:
    kind = inline["mimeType"]
    if kind not in IMAGE_TYPES:
        raise Rejected(f"Unsupported MIME type: {kind}")
    data = decoded(inline["data"])
    if data is None or sniffed_type(data) != kind:
        raise Rejected(
            "Unable to process input image. Please retry or report in https://developers.generativeai.google/"
        )


_CAMEL = re.compile(r"_([a-z])")
_FREE = frozenset({"args", "response", "parameters", "parametersJsonSchema"})
"""Fields whose own keys belong to the tool."""


def _camel(value: Any) -> Any:
    """A body with its field names in the form of the documentation: the service accepts both."""
    if is_entries(value):
        return [_camel(item) for item in value]
    if not is_body(value):
        return value
    renamed: Body = {}
    for name, item in value.items():
        camel = _CAMEL.sub(lambda match: match[1].upper(), name)
        renamed[camel] = item if camel in _FREE else _camel(item)
    return renamed


def _prompt_text(body: Mapping[str, Any]) -> str:
    """The prompt in the order of the cache, with images as texts of their size in tokens."""
    instruction = section(body, "system_instruction") or section(body, "systemInstruction")
    parts = [canonical(instruction), canonical(entries(body, "tools"))]
    parts += [canonical(_without_images(_camel(content))) for content in entries(body, "contents")]
    return "\n".join(parts)


def _without_images(value: Any) -> Any:
    if is_entries(value):
        return [_without_images(item) for item in value]
    if not is_body(value):
        return value
    if "inlineData" in value:
        return padded(IMAGE_TOKENS, value["inlineData"]["data"])
    return {
        name: _without_images(item) for name, item in value.items() if name != "thoughtSignature"
    }


def _prompt_messages(body: Body, contents: list[Body]) -> Iterator[PromptMessage]:
    instruction: Body = _camel(
        section(body, "system_instruction") or section(body, "systemInstruction")
    )
    if instruction:
        yield PromptMessage(
            "system", "".join(part.get("text", "") for part in instruction["parts"])
        )
    for content in contents:
        parts: list[Body] = content["parts"]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if responses:
            results = tuple(
                (item.get("id") or item["name"], _text(item["response"])) for item in responses
            )
            yield PromptMessage(
                "tool",
                images=sum(len(item.get("parts") or ()) for item in responses),
                results=results,
            )
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        calls = tuple(
            (call.get("id") or call["name"], call["name"], section(call, "args"))
            for part in parts
            if (call := section(part, "functionCall"))
        )
        if text or calls or not responses:
            images = sum("inlineData" in part for part in parts)
            yield PromptMessage(
                "assistant" if content["role"] == "model" else "user", text, images, calls
            )


def _text(response: Body) -> str:
    return next(
        (value for value in response.values() if isinstance(value, str)), canonical(response)
    )
