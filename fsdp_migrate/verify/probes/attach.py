"""Attaches every probe. A new probe is a module with `attach(session)` and a line here."""

from __future__ import annotations

from fsdp_migrate.verify.probes import backward, between, clipping, collectives, models, saving, steps
from fsdp_migrate.verify.probes.session import Session


def attach_all(session: Session) -> None:
    """Attach every probe to this process, for good."""
    for probe in (collectives, models, backward, clipping, between, saving, steps):
        probe.attach(session)
