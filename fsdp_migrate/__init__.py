"""Moves PyTorch FSDP1 training to FSDP2: code (`rewrite`), checkpoints (`convert-ckpt`), proof (`verify`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoint_convert.capture import capture_layout


__version__ = "0.1.0"

__all__ = ["__version__", "capture_layout"]


def __getattr__(name: str) -> object:
    # Imported on first use: the command line must start without torch.
    if name == "capture_layout":
        from checkpoint_convert.capture import capture_layout

        return capture_layout
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
