"""Combines screenshots of Textual into one animated SVG; elements shared by several frames are drawn once."""

import re
from collections.abc import Sequence

_STYLE = re.compile(r"^\s*\.(terminal-\d+-r\d+) \{ (.*?) ?\}$", re.MULTILINE)
_ELEMENT = re.compile(
    r"<rect [^>]*shape-rendering[^>]*/>|<text class=\"terminal-\d+-r\d+\".*?</text>", re.DOTALL
)
_IDENTIFIER = re.compile(r"terminal-\d+")
_CLASS = re.compile(r'class="(terminal-\d+-r\d+)"')


def animated(frames: Sequence[tuple[str, float]]) -> str:
    """Return an SVG that shows each screenshot for its number of seconds, in a loop.

    A reader who prefers reduced motion sees the last frame, as do programs that do not animate.
    """
    starts, total = [0.0], 0.0
    for _, seconds in frames:
        total += seconds
        starts.append(total)
    visible: dict[str, list[int]] = {}
    styles: dict[str, str] = {}
    for at, (screenshot, _) in enumerate(frames):
        classes = {
            name: styles.setdefault(style, f"s{len(styles)}")
            for name, style in _STYLE.findall(screenshot)
        }
        for element in _ELEMENT.findall(screenshot):
            styled = _CLASS.sub(lambda match, names=classes: f'class="{names[match[1]]}"', element)
            visible.setdefault(_IDENTIFIER.sub("t", styled), []).append(at)
    groups: dict[tuple[bool, int, int], list[str]] = {}  # backgrounds are drawn below texts
    for element, places in visible.items():
        for first, last in _runs(places):
            groups.setdefault((element.startswith("<text"), first, last), []).append(element)
    rules = [f".{name} {{ {style} }}" for style, name in styles.items()]
    drawn: list[str] = []
    animations: set[str] = set()
    for (_, first, last), elements in sorted(groups.items()):
        kind = f"f{first}-{last}"
        if (first, last) != (0, len(frames) - 1) and kind not in animations:
            animations.add(kind)
            on, off = (100 * starts[place] / total for place in (first, last + 1))
            hidden_first = "0% { visibility: hidden } " if first else ""
            hidden_last = f"{off:.3f}% {{ visibility: hidden }} " if last < len(frames) - 1 else ""
            rules.append(
                f"@keyframes {kind} {{ {hidden_first}{on:.3f}% {{ visibility: visible }} {hidden_last}}}"
            )
            still = "visible" if last == len(frames) - 1 else "hidden"
            rules.append(
                f".{kind} {{ visibility: {still}; animation: {kind} {total:g}s step-end infinite; }}"
            )
            rules.append(
                f"@media (prefers-reduced-motion: reduce) {{ .{kind} {{ animation: none; }} }}"
            )
        drawn.append(f'<g class="{kind}">{"".join(elements)}</g>')
    return _with_content(_IDENTIFIER.sub("t", frames[-1][0]), "\n".join(rules), "\n".join(drawn))


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last place of each run of consecutive places."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and place <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


def _with_content(picture: str, rules: str, content: str) -> str:
    """Return the picture with other styles and other elements on its screen."""
    picture = re.sub(r"^\s*\.t-r\d+ \{.*?\}\n", "", picture, flags=re.MULTILINE)
    picture = picture.replace("</style>", f"{rules}\n    </style>", 1)
    picture = re.sub(
        r"<rect [^>]*shape-rendering[^>]*/>|<text class=\"t-r\d+\".*?</text>",
        "",
        picture,
        flags=re.DOTALL,
    )
    return re.sub(
        r'(<g class="t-matrix">)\s*', lambda match: f"{match[1]}\n{content}\n", picture, count=1
    )
