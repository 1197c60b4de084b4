import json
from pathlib import Path

packages = {package["name"]: package for package in (json.loads(path.read_text()) for path in Path("packages").glob("*/package.json"))}


def dependencies(name, visited=()):
    names = {*visited}
    for other in packages[name]["requires"]:
        if other not in names:
            names |= dependencies(other, names | {other})
    return names


def met(condition, version):
    required = tuple(map(int, condition[2:].split(".")))
    installed = tuple(map(int, version.split(".")))[:2]
    if condition.startswith("=="):
        return installed == required
    return installed[0] == required[0] and installed >= required


unmet, licences, tainted, weight = [], {}, [], []
for name, package in sorted(packages.items()):
    for other, condition in sorted(package["requires"].items()):
        if not met(condition, packages[other]["version"]):
            unmet.append(f"{name} needs {other} {condition}, has {packages[other]['version']}")
    licences.setdefault(package["license"] or "unknown", []).append(name)
    needed = dependencies(name)
    through = sorted(other for other in needed if packages[other]["license"] == "GPL-3.0")
    if through and package["license"] != "GPL-3.0":
        tainted.append(f"{name} through {', '.join(through)}")
    weight.append((-package["size"] - sum(packages[other]["size"] for other in needed), name, package["size"]))
roots = sorted(set(packages) - {other for package in packages.values() for other in package["requires"]})
sections = {
    "Unmet": unmet,
    "Licences": [f"{key}: {', '.join(names)}" for key, names in sorted(licences.items(), key=lambda item: (item[0] == "unknown", item[0]))],
    "Tainted": tainted,
    "Weight": [f"{name} {size} {-total}" for total, name, size in sorted(weight)],
    "Roots": roots,
}
Path("AUDIT.txt").write_text("\n\n".join("\n".join([heading, *(lines or ["none"])]) for heading, lines in sections.items()) + "\n")
