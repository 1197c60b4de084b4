"""python -m quill FILE [--contents] [--width N]: print a document."""

import argparse
import sys
from pathlib import Path

from quill.model import QuillError
from quill.reader import read
from quill.render import WIDTH, render


def main():
    parser = argparse.ArgumentParser(prog="quill")
    parser.add_argument("file")
    parser.add_argument("--contents", action="store_true")
    parser.add_argument("--width", type=int, default=WIDTH)
    args = parser.parse_args()
    try:
        blocks = read(Path(args.file).read_text(encoding="utf-8"))
    except (OSError, QuillError) as failure:
        print(failure, file=sys.stderr)
        return 1
    sys.stdout.write(render(blocks, args.width, args.contents))
    return 0


if __name__ == "__main__":
    sys.exit(main())
