import re
from collections import defaultdict
from pathlib import Path

games = []
for line in Path("games.txt").read_text().splitlines():
    text, _, comment = line.partition("#")
    match = re.fullmatch(r"(\d+)\. (\w+) - (\w+) (1-0|0-1|1/2|\*)", text.strip())
    if match and match[4] != "*":
        games.append((match[1], match[2], match[3], {"1-0": (2, 0), "0-1": (0, 2), "1/2": (1, 1)}[match[4]], comment.strip() != "by forfeit"))
names = {name for game in games for name in game[1:3]}
points, wins, played, sb = (defaultdict(int) for _ in range(4))
for _, white, black, result, real in games:
    for name, got in ((white, result[0]), (black, result[1])):
        points[name] += got
        played[name] += real
        wins[name] += real and got == 2
for _, white, black, result, real in games:
    if real:
        sb[white] += result[0] * points[black]
        sb[black] += result[1] * points[white]
among = defaultdict(int)
for _, white, black, result, real in games:
    if points[white] == points[black]:
        among[white] += result[0]
        among[black] += result[1]


def key(name):
    return (-points[name], -among[name], -sb[name], -wins[name])


order = sorted(names, key=lambda name: (key(name), name))
rank = {name: 1 + sum(key(other) < key(name) for other in names) for name in order}
out = ["rank name        played points wins   sb"]
out += [f"{rank[n]:>4} {n:<11} {played[n]:>6} {points[n] / 2:>6.1f} {wins[n]:>4} {sb[n] / 4:>5.2f}" for n in order]
best = None
for number, white, black, result, real in games:
    if real and result != (1, 1):
        winner, loser = (white, black) if result[0] else (black, white)
        gap = rank[winner] - rank[loser]
        if best is None or gap > best[0]:
            best = gap, f"biggest upset: {number}. {winner} beat {loser}"
out += ["", best[1]]
Path("table.txt").write_text("\n".join(out) + "\n")
