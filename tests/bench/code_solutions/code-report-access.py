import re
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

LINE = re.compile(r'(\S+) \[(\d\d):(\d\d):(\d\d)\] "GET ([^ ?"]+)(?:\?[^ "]*)?" (\d{3}) (\d+|-) (\d+)ms')
damaged, rows = 0, []
for line in Path("server.log").read_text().splitlines():
    match = LINE.fullmatch(line)
    if match:
        host, h, m, s, path, status, size, ms = match.groups()
        rows.append((host, int(h) * 3600 + int(m) * 60 + int(s), path, int(status), 0 if size == "-" else int(size), int(ms)))
    else:
        damaged += bool(line.strip())
times = sorted(row[5] for row in rows)
out = [f"damaged: {damaged}", f"requests: {len(rows)}", f"bytes: {sum(row[4] for row in rows)}", f"errors: {sum(row[3] >= 500 for row in rows)}",
       f"p95 ms: {times[-(-len(times) * 95 // 100) - 1]}"]
paths = defaultdict(list)
for row in rows:
    paths[row[2]].append(row)
for path, some in sorted(paths.items(), key=lambda item: (-len(item[1]), item[0])):
    mean = (Decimal(sum(row[5] for row in some)) / len(some)).quantize(Decimal("0.1"), ROUND_HALF_UP)
    out.append(f"{path} {len(some)} requests, {mean} ms, {sum(row[3] >= 500 for row in some)} errors")
sessions, last = [], {}
for row in rows:
    if row[0] in last and row[1] - last[row[0]][-1][1] <= 600:
        last[row[0]].append(row)
    else:
        last[row[0]] = [row]
        sessions.append(last[row[0]])
best = max(sessions, key=len)
out += [f"sessions: {len(sessions)}", f"longest: {best[0][0]}, {len(best)} requests, {best[-1][1] - best[0][1]} s"]
Path("report.txt").write_text("\n".join(out) + "\n")
