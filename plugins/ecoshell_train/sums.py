"""Training tasks with a calculation: sums in words, times, dates and units."""

import random
from datetime import date, timedelta

from ecoshell_train.world import Made, World, only, whole

_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TO_NINETEEN = _SMALL_NUMBERS.split()
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def spelled(number: int) -> str:
    """Return a number from 0 to 999 in words."""
    if number < 20:
        return _TO_NINETEEN[number]
    if number < 100:
        tens, units = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_TO_NINETEEN[units]}" if units else "")
    hundreds, remainder = divmod(number, 100)
    return f"{_TO_NINETEEN[hundreds]} hundred" + (f" and {spelled(remainder)}" if remainder else "")


def story(world: World, expression: str) -> Made:
    """Calculate a word problem; the phrasing has its expression after an arrow."""
    chance = world.chance
    small = sorted(chance.sample(range(2, 20), k=3))
    digits = {
        "n": small[2],
        "m": small[1],
        "k": small[0],
        "big": chance.randint(21, 980),
        "p": chance.randint(2, 18) * 5,
    }
    text = {
        name: spelled(value) if chance.random() < 0.4 else str(value)
        for name, value in digits.items()
    }
    money = {
        name: f"{chance.randint(2, 90)}{chance.choice(('', '', '.5', '.25', '.99'))}"
        for name in ("price", "fee")
    }
    year = chance.randint(1930, 2010)
    years = {"year": str(year), "later": str(year + chance.randint(8, 60))}
    world.about |= {
        **text,
        **money,
        **years,
        "name": world.word("people"),
        "word": world.word("nouns"),
    }
    figures = {**world.about, **{name: str(value) for name, value in digits.items()}}
    call = only("calculate", expression=expression.format(**figures))
    return call, whole


def clock(world: World, kind: str) -> Made:
    """Calculate with times of day, in minutes since midnight."""
    chance = world.chance
    start, end = sorted(chance.sample(range(6 * 12, 23 * 12), k=2))
    begin, finish = start * 5, end * 5
    length = chance.randrange(10, 300, 5)
    hours, remainder = divmod(length, 60)
    spoken = {
        90: "an hour and a half",
        45: "three quarters of an hour",
        30: "half an hour",
        60: "an hour",
    }
    both = (
        f"{hours} hour{'s' * (hours > 1)} and {remainder} minutes"
        if hours and remainder
        else spoken.get(length, "")
    )
    chosen = chance.choice(
        (f"{length} minutes", f"{length} min", spoken.get(length) or both or f"{length} minutes")
    )
    world.about |= {"start": _hour(begin, chance), "end": _hour(finish, chance), "long": chosen}
    minutes_taken = f"{hours} * 60 + {remainder}" if chosen == both and hours else str(length)
    if kind == "clock_between":
        code = (
            f"minutes = ({finish // 60} * 60 + {finish % 60}) - ({begin // 60} * 60 + {begin % 60})\n"
            "print(minutes // 60, 'hours', minutes % 60, 'minutes')"
        )
    else:
        sign, brackets = (
            ("-", f"({minutes_taken})") if kind == "clock_before" else ("+", minutes_taken)
        )
        code = (
            f"minutes = {begin // 60} * 60 + {begin % 60} {sign} {brackets}\n"
            "print(f'{minutes // 60 % 24:02}:{minutes % 60:02}')"
        )
    return only("run_python", code=code), whole


def _hour(minutes: int, chance: random.Random) -> str:
    hour, remainder = divmod(minutes, 60)
    text = [f"{hour}:{remainder:02d}", f"{hour}:{remainder:02d}"]
    if hour != 12 and not remainder:
        text.append(f"{hour % 12} {'am' if hour < 12 else 'pm'}")
    if hour < 12 and remainder == 30:
        text.append(f"half past {spelled(hour)} in the morning")
    return chance.choice(text)


def days(world: World, kind: str) -> Made:
    """Calculate with two dates in varied formats."""
    first = date(2023, 1, 1) + timedelta(days=world.chance.randrange(900))
    last = first + timedelta(days=world.chance.randint(5, 300))
    for name, day in (("first", first), ("last", last)):
        forms = (day.isoformat(), f"{day.day} {day:%B %Y}", f"{day:%B} {day.day}, {day.year}")
        world.about[name] = world.chance.choice(forms)
    offset, two = (f"date({day.year}, {day.month}, {day.day})" for day in (first, last))
    expression = f"({two} - {offset}).days" if kind == "days" else f"{offset}.strftime('%A')"
    return only("run_python", code=f"from datetime import date\nprint({expression})"), whole


def measure(world: World, _: str) -> Made:
    """Convert an amount in words to another unit."""
    text, unit, said_to, to = world.word("measures")
    amount, value = world.word("amounts")
    if world.chance.random() < 0.5:
        number = world.chance.randint(2, 120)
        amount, value = world.chance.choice((str(number), spelled(number))), str(number)
    world.about |= {"n": amount, "unit": text, "to": said_to}
    call = only("convert_units", value=value, from_unit=unit, to_unit=to)
    return call, whole
