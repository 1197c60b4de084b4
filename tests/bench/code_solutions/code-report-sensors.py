import csv
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

readings = {}
for row in csv.DictReader(Path("readings.csv").open()):
    try:
        value = Fraction(row["value"])
    except ValueError:
        continue
    if row["unit"] == "F":
        value = (value - 32) * 5 / 9
    if -60 <= value <= 60:
        readings[row["sensor"], row["time"]] = value


def text(value):
    tenths = int(abs(value) * 10 + Fraction(1, 2))
    sign = "-" if value < 0 and tenths else ""
    return f"{sign}{tenths // 10}.{tenths % 10}"


def figures(values):
    return f"{len(values)},{text(min(values))},{text(max(values))},{text(sum(values) / len(values))}"


days = defaultdict(dict)
for (sensor, time), value in readings.items():
    days[sensor, time[:10]][int(time[11:13])] = value
lines = ["sensor,day,readings,min,max,mean,gap"]
for (sensor, day), hours in sorted(days.items()):
    gap = longest = 0
    for hour in range(24):
        gap = 0 if hour in hours else gap + 1
        longest = max(longest, gap)
    lines.append(f"{sensor},{day},{figures(list(hours.values()))},{longest}")
lines.append(f"all,,{figures(list(readings.values()))},")
Path("sensors.csv").write_text("\n".join(lines) + "\n")
