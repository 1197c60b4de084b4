"""The helper process that counts tokens: says `ready`, then answers each line, a text as JSON, with its count."""

import json
import sys


def main() -> None:
    """Count until standard input ends; the only argument names the encoding, `TIKTOKEN_CACHE_DIR` its folder."""
    import tiktoken
    import tiktoken.load

    tiktoken.load.read_file = _refuse  # a missing or damaged file must not become a download
    encoding = tiktoken.get_encoding(sys.argv[1])
    encoding.encode_ordinary("")
    _say("ready")
    for line in sys.stdin.buffer:
        _say(len(encoding.encode_ordinary(json.loads(line))))


def _refuse(blobpath: str) -> bytes:
    raise FileNotFoundError(f"{blobpath} is not in the folder")


def _say(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
