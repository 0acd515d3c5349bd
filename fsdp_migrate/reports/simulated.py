"""The memory of a simulated world, for a terminal and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate import console
from fsdp_migrate.reports import output_file
from fsdp_migrate.reports.parity import plain

if TYPE_CHECKING:
    from fsdp_migrate.verify.simulate import Simulation

_GIB = 1 << 30


def show(result: Simulation, form: str, output: Path | None) -> None:
    """Write it to stdout, or to `output`.

    Args:
        form: "json", or anything else for text.
    """
    text = json.dumps(plain(result), indent=2) if form == "json" else render(result)
    if output is None:
        console.results().print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        output_file.save(output, text + "\n")


def render(result: Simulation) -> str:
    """As text of at most 80 columns."""
    config = result.config
    lines = [
        f"Rank 0 of {result.world} ranks, simulated on {result.device}",
        f"  {result.parameters / 1e9:.2f} G parameters, {config.dtype}, {config.strategy}, "
        f"batch {config.batch} x {config.sequence}",
        f"  {'':24}{'FSDP1':>12}{'FSDP2':>12}",
    ]
    for title, key in (
        ("peak allocated", "peak_allocated"),
        ("peak reserved", "peak_reserved"),
        ("after a step", "steady"),
    ):
        cells = "".join(f"{getattr(arm, key) / _GIB:8.2f} GiB" for arm in result.arms)
        lines.append(f"  {title:24}{cells}")
    times = "".join(f"{arm.step_seconds * 1e3:9.1f} ms" for arm in result.arms)
    lines.append(f"  {'step, no communication':24}{times}")
    lines.append(f"  measured: {result.measured}; numbers computed mean nothing here")
    return "\n".join(lines)
