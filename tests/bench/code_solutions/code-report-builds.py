import re
from collections import Counter, defaultdict
from pathlib import Path

rows, by_file, failures, tested = [], defaultdict(Counter), defaultdict(list), []
for path in sorted(Path("logs").glob("build-*.log")):
    name = path.stem[-2:]
    open_steps, took, failed, warned, last = {}, {}, set(), set(), "0.0"
    for line in path.read_text().splitlines():
        stamp, text = re.fullmatch(r"\[0*(\d+\.\d)\] (.*)", line).groups()
        last = stamp
        tenths = int(stamp.replace(".", ""))
        if step := re.fullmatch(r"=== (\w+) (started|done)", text):
            if step[2] == "started":
                open_steps[step[1]] = tenths
            else:
                took[step[1]] = tenths - open_steps.pop(step[1])
        elif warning := re.fullmatch(r"([^:]+):(\d+): warning: (.*) \[-W(\w+)\]", text):
            if text not in warned:
                warned.add(text)
                by_file[warning[1]][warning[4]] += 1
        elif test := re.fullmatch(r"FAILED (\w+)", text):
            failed.add(test[1])
    if "test" in took:
        tested.append(name)
    for test in failed:
        failures[test].append(name)
    slowest = max(took, key=took.get)
    result = "broken" if open_steps else "failed" if failed else "ok"
    rows.append(f"| {name} | {result} | {last} | {slowest} ({took[slowest] // 10}.{took[slowest] % 10}) | {len(warned)} | {', '.join(sorted(failed)) or '-'} |")
out = ["# Builds", "", "| build | result | seconds | slowest step | warnings | failed tests |", "|---|---|---|---|---|---|", *rows, "", "## Warnings", ""]
for file, kinds in sorted(by_file.items(), key=lambda item: (-item[1].total(), item[0])):
    out.append(f"- {file}: {kinds.total()} ({', '.join(f'{kind} {count}' for kind, count in sorted(kinds.items()))})")
out += ["", "## Flaky tests", ""]
flaky = [f"- {test}: builds {', '.join(builds)}" for test, builds in sorted(failures.items()) if len(builds) >= 2 and not set(tested) <= set(builds)]
Path("BUILDS.md").write_text("\n".join([*out, *(flaky or ["- none"])]) + "\n")
