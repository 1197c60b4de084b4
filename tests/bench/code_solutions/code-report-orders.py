import json
from collections import Counter
from pathlib import Path

orders = json.loads(Path("data/orders.json").read_text())
people = {person["id"]: person for person in json.loads(Path("data/customers.json").read_text())}
months, towns, spent, pieces = {}, Counter(), Counter(), Counter()
for order in orders:
    if order["status"] != "paid":
        continue
    cents = max(0, sum(item["count"] * item["cents"] for item in order["items"]) - order.get("refund", 0))
    month = months.setdefault(order["day"][:7], {"orders": 0, "cents": 0})
    month["orders"] += 1
    month["cents"] += cents
    person = people.get(order["customer"])
    towns[person["town"] if person else "unknown"] += cents
    if person:
        spent[person["id"]] += cents
    for item in order["items"]:
        pieces[item["sku"]] += item["count"]
active = {order["customer"] for order in orders if order["status"] in ("paid", "open")}
summary = {
    "months": dict(sorted(months.items())),
    "towns": dict(sorted(towns.items())),
    "best": [people[number]["name"] for number in sorted(spent, key=lambda number: (-spent[number], number))[:3]],
    "top_sku": min(pieces, key=lambda sku: (-pieces[sku], sku)),
    "unpaid": [order["id"] for order in sorted(orders, key=lambda order: (order["day"], order["id"])) if order["status"] == "open"],
    "without_orders": sorted(person["name"] for number, person in people.items() if number not in active),
}
Path("summary.json").write_text(json.dumps(summary, indent=2) + "\n")
