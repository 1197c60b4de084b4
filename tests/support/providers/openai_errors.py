"""What the two APIs of OpenAI share: error bodies, names, images and the automatic prompt cache."""

import re
from collections.abc import Mapping
from typing import Any

from providers.media import IMAGE_TYPES, data_url, decoded, sniffed_type
from providers.server import Body, Model, Rejected

MODELS: Mapping[str, Model] = {
    "gpt-4.1-mini": Model(1_047_576, 32_768),
    "gpt-5-mini": Model(400_000, 128_000, "effort", ("minimal", "low", "medium", "high")),
    "gpt-5.4": Model(
        1_050_000,
        128_000,
        "effort",
        ("none", "low", "medium", "high", "xhigh"),
        default_effort="none",
    ),
}
CACHE_STEP = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def cached_tokens(shared: int, minimum: int) -> int:
    """Cached tokens of a shared prefix: at least the minimum, in steps of 128."""
    return shared // CACHE_STEP * CACHE_STEP if shared >= minimum else 0


def error_body(rejected: Rejected) -> Body:
    kinds = {
        "": "invalid_request_error",
        "rate_limit_error": "requests",
        "overloaded_error": "server_error",
    }
    codes = {"rate_limit_error": "rate_limit_exceeded"}
    return {
        "error": {
            "message": rejected.message,
            "type": kinds.get(rejected.kind, rejected.kind),
            "param": rejected.param,
            "code": rejected.code or codes.get(rejected.kind),
        }
    }


def check_fields(place: str, fields: Mapping[str, Any], allowed: frozenset[str]) -> None:
    for name in fields:
        if name not in allowed:
            full = f"{place}.{name}" if place else name
            raise Rejected(f"Unknown parameter: '{full}'.", param=full, code="unknown_parameter")


def check_length(place: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise Rejected(
            f"Invalid '{place}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(text)} instead.",
            param=place,
            code="string_above_max_length",
        )


def check_name(place: str, name: str, longest: int = 64) -> None:
    check_length(place, name, longest)
    if not _NAME.fullmatch(name):
        raise Rejected(
            f"Invalid '{place}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            param=place,
            code="invalid_value",
        )


def check_image(place: str, url: str) -> None:
    """An image's data URL: a known type, and bytes of that type."""
    split = data_url(url)
    if split is None:
        raise Rejected(
            f"Invalid '{place}'. Expected a valid URL, but got a value with an invalid format.",
            param=place,
        )
    kind, text = split
    data = decoded(text)
    if data is None:
        raise Rejected("Invalid base64 image_url.", param=place, code="invalid_base64")
    if kind not in IMAGE_TYPES:
        raise Rejected(
            "Invalid MIME type. Only image types are supported.",
            param=place,
            code="invalid_image_format",
        )
    if sniffed_type(data) != kind:
        raise Rejected(
            "The image data you provided does not represent a valid image. Please check your input and try again "
            f"with one of the supported image formats: {list(IMAGE_TYPES)}.",
            param=place,
            code="invalid_image",
        )


def check_effort(place: str, effort: object, model: Model) -> None:
    if effort is not None and effort not in model.efforts:
        if model.reasoning == "none":
            raise Rejected(
                f"Unrecognized request argument supplied: {place}",
                param=place,
                code="unknown_parameter",
            )
        supported = ", ".join(f"'{name}'" for name in model.efforts)
        raise Rejected(
            f"Unsupported value: '{place}' does not support '{effort}' with this model. Supported values are: "
            f"{supported}.",
            param=place,
            code="unsupported_value",
        )


def is_reasoning(model: Model, effort: object) -> bool:
    return model.reasoning == "effort" and (effort or model.default_effort) != "none"


def check_temperature(body: Mapping[str, Any], model: Model, effort: object) -> None:
    temperature = body.get("temperature", 1)
    if is_reasoning(model, effort) and temperature not in (None, 1):
        raise Rejected(
            f"Unsupported value: 'temperature' does not support {temperature} with this model. Only the default "
            "(1) value is supported.",
            param="temperature",
            code="unsupported_value",
        )
