"""Compare what a reader found with what torch says, element by element, as bytes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from checkpoint_convert.model import Contents, DType, OptimizerContents, TensorSource, numel


def bytes_of(source: TensorSource) -> bytes:
    """All bytes, read as a writer reads them."""
    return b"".join(bytes(block) for block in source.blocks(0, numel(source.shape)))


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """A torch tensor's elements, row-major."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def assert_same_tensor(source: TensorSource, tensor: torch.Tensor, name: str) -> None:
    """Same dtype, shape and bits."""
    assert f"torch.{source.dtype.torch_name}" == str(tensor.dtype), name
    assert tuple(source.shape) == tuple(tensor.shape), name
    assert bytes_of(source) == tensor_bytes(tensor), name


def assert_same_model(contents: Contents, truth: Mapping[str, torch.Tensor]) -> None:
    """Every tensor of the truth, and no other."""
    assert set(contents.model) == set(truth)
    for name, tensor in truth.items():
        assert_same_tensor(contents.model[name], tensor, name)


def assert_same_state(
    optimizer: OptimizerContents | None,
    truth: Mapping[str, Mapping[str, Any]],
    *,
    ignore: tuple[str, ...] = (),
) -> None:
    """Every state of the truth, bit for bit, and no other; `step` as a 0-dim tensor of its own."""
    assert optimizer is not None
    assert set(optimizer.state) == set(truth)
    steps = []
    for name, entry in truth.items():
        found = optimizer.state[name]
        assert set(found) == set(entry), name
        for item, value in entry.items():
            if item in ignore:
                continue
            if item == "step":
                steps.append(found[item])
                assert found[item].shape == () and found[item].dtype is DType.FLOAT32
                assert bytes_of(found[item]) == tensor_bytes(torch.as_tensor(value, dtype=torch.float32))
            else:
                assert_same_tensor(found[item], torch.as_tensor(value), f"{name}.{item}")
    assert len(set(map(id, steps))) == len(steps)


def load(path: Any) -> Any:
    """torch.load of a file of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(path, weights_only=True)
