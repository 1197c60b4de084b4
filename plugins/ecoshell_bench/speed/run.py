"""`ecoshell bench speed`: speed and memory of the shell, as medians compared with a baseline from the same run."""

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from ecoshell.errors import UsageError
from ecoshell.models.embedded import embedded_path
from ecoshell.models.gguf import check_adapter, check_base
from ecoshell.models.local_models import local_files
from ecoshell_bench.printing import note, show, show_record
from ecoshell_bench.speed.chat import measure_chat, measure_processes
from ecoshell_bench.speed.confinement import measure_sandbox
from ecoshell_bench.speed.measuring import Measurement
from ecoshell_bench.speed.models import measure_local, measure_roles
from ecoshell_bench.speed.path import measure_path
from ecoshell_bench.speed.planning import measure_planning, measure_reserve_settle
from ecoshell_bench.speed.remote import measure_remote


def run(args: argparse.Namespace) -> int:
    """Measure the shell, one local model or a question's path, and print; raises EcoshellError."""
    if args.path:
        show_record(measure_path(), as_json=args.json)
        return 0
    measurements: Iterable[Measurement]
    if args.model is not None:
        files = local_files(args.model)
        if files is None or files.adapter is not None:
            raise UsageError(
                f"{args.model} is not a local model without an adapter.",
                fix="Give embedded or local:FILE.gguf.",
            )
        check_base(files.base)
        measurements = asyncio.run(measure_local(files.base, args.repeat))
    else:
        if args.adapter is None:
            note("Skipping adapter_switch, which needs --adapter FILE for the embedded model.")
        else:
            check_adapter(args.adapter, embedded_path())
        measurements = measure_speed(args.repeat, args.adapter)
    rows: list[Measurement] = []
    for row in measurements:
        rows.append(row)
        if not args.json:
            baseline = "–" if row.baseline is None else f"{row.baseline:,.4g}"
            ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
            show(
                f"{row.what:<24} {row.value:>10,.4g} {row.unit:<9} baseline {baseline:>10}   ratio {ratio:>6}"
            )
    if args.json:
        show(json.dumps({"rows": list(map(asdict, rows))}))
    return 0


def measure_speed(repeat: int = 15, adapter: Path | None = None) -> Iterator[Measurement]:
    """Yield the measurements; slower ones repeat less often.

    Skips the sandbox where none works, memory without Linux's /proc, roles without the embedded model, and switching
    without a LoRA `adapter`.
    """
    yield from measure_processes(repeat)
    yield from measure_remote(repeat)
    yield measure_reserve_settle()
    yield from measure_planning(repeat)
    yield from measure_sandbox(repeat)
    yield from measure_roles(repeat, adapter)
    yield from measure_chat(repeat)
