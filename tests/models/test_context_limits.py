"""Context limits stated in provider errors."""

import pytest

from ecoshell.models.context_limits import stated_limit

MESSAGES = [
    ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7000 in the messages, "
     "2000 in the completion). Please reduce the length of the messages or completion.", 8_192),
    ("This model's maximum context length is 131072 tokens. However, you sent 140001 tokens.", 131_072),
    ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length", 200_000),
    ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.", 272_000),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    ("the request exceeds the available context size (8192 tokens), try increasing it", 8_192),
    ("request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it", 4_096),
    ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
    ("Trying to keep the first 9000 tokens when context length is only 4096 tokens", 4_096),
    ("This endpoint's maximum context length is 163840 tokens. However, you requested about 200000 tokens", 163_840),
    ("Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", 8_192),
    ("The prompt is too long.", None),
    ("maximum context length is 7 tokens", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "limit"), MESSAGES)
def test_the_limit_is_parsed_from_each_providers_message(message, limit):
    assert stated_limit(message) == limit
