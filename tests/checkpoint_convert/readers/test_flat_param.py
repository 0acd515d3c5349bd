"""The arithmetic of flat parameters against torch's own handles, on random models, worlds and settings.

A fake process group stands in for the other ranks: FSDP1 shards on construction, without communication, so
building the model once per rank gives every rank's shard.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from comparing import bytes_of, tensor_bytes
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.testing._internal.distributed.fake_pg import FakeStore

from checkpoint_convert.flat_param import Sharding, UnitLayout, lay_out, span_on_rank, unit_members
from checkpoint_convert.model import BY_TORCH_NAME, DType
from checkpoint_convert.module_layout import layout_of
from checkpoint_convert.readers.cutting import cut
from checkpoint_convert.readers.names import clean
from checkpoint_convert.tensor_sources import ConcatTensor, MemoryTensor

Shape = tuple[int, ...]


class Node(nn.Module):
    """A module of given parameters."""

    def __init__(self, shapes: list[Shape], children: list[nn.Module]) -> None:
        super().__init__()
        for number, shape in enumerate(shapes):
            self.register_parameter(f"p{number}", nn.Parameter(torch.empty(shape)))
        for number, child in enumerate(children):
            self.add_module(f"c{number}", child)


class Unit(Node):
    """A module the policy wraps."""


@dataclass(frozen=True)
class Tree:
    """A recipe for a model: the same recipe builds the same model any number of times."""

    wrapped: bool
    shapes: tuple[Shape, ...]
    children: tuple[Tree, ...]


def trees(depth: int = 3) -> st.SearchStrategy[Tree]:
    shape = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)
    children = st.just(()) if depth == 0 else st.lists(trees(depth - 1), max_size=3).map(tuple)
    return st.builds(Tree, st.booleans(), st.lists(shape, max_size=3).map(tuple), children)


@dataclass(frozen=True)
class Setting:
    """How one example is wrapped."""

    world: int
    orig: bool
    compute: torch.dtype | None
    dtype: torch.dtype
    sharded: bool
    ties: tuple[tuple[int, int], ...]
    channels_last: bool
    shared_module: bool


def settings_of_jobs() -> st.SearchStrategy[Setting]:
    return st.builds(
        Setting,
        st.integers(1, 9),
        st.booleans(),
        st.sampled_from([None, torch.bfloat16, torch.float16, torch.float32, torch.float64]),
        st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
        st.booleans(),
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=2).map(tuple),
        st.booleans(),
        st.booleans(),
    )


def make(tree: Tree, setting: Setting) -> nn.Module:
    """Build, tie, share, and fill with distinct values."""
    model = Node([(3,)], [_module(tree), Node([(2, 2)], [])])
    if setting.shared_module:
        model.add_module("again", model.c1)
    slots = [(module, name) for module in model.modules() for name in module._parameters]
    for one, two in setting.ties:
        (first, name), (second, other) = slots[one % len(slots)], slots[two % len(slots)]
        if getattr(first, name).shape == getattr(second, other).shape:
            setattr(second, other, getattr(first, name))
    at = 0
    with torch.no_grad():
        for parameter in model.parameters():
            values = torch.arange(at, at + parameter.numel(), dtype=torch.float32)
            parameter.copy_(values.view(parameter.shape))
            at += parameter.numel()
            if setting.channels_last and parameter.dim() == 4:
                parameter.data = parameter.data.to(memory_format=torch.channels_last)
    return model.to(setting.dtype)


def _module(tree: Tree) -> nn.Module:
    kind = Unit if tree.wrapped else Node
    return kind(list(tree.shapes), [_module(child) for child in tree.children])


@contextmanager
def rank_of(rank: int, world: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def handles(tree: Tree, setting: Setting, rank: int) -> dict[str, Any]:
    """torch's own handles on one rank, by clean FQN of the unit."""
    with rank_of(rank, setting.world):
        wrapped = FSDP(
            make(tree, setting),
            auto_wrap_policy=ModuleWrapPolicy({Unit}),
            sharding_strategy=ShardingStrategy.FULL_SHARD if setting.sharded else ShardingStrategy.NO_SHARD,
            mixed_precision=MixedPrecision(param_dtype=setting.compute) if setting.compute else None,
            use_orig_params=setting.orig,
            device_id=torch.device("cpu"),
        )
        units = FSDP.fsdp_modules(wrapped)
        names = {module: clean(path) for path, module in wrapped.named_modules()}
        return {names[unit]: unit._handle for unit in units if unit._handle is not None}


def dtype_of(setting: Setting) -> DType:
    return BY_TORCH_NAME[str(setting.dtype).removeprefix("torch.")]


def ours(tree: Tree, setting: Setting) -> dict[str, UnitLayout]:
    model = make(tree, setting)
    layout = layout_of(model, "test")
    prefixes = [
        path for path, module in model.named_modules(remove_duplicate=False) if isinstance(module, Unit)
    ]
    itemsize = setting.compute.itemsize if setting.compute else None
    sharding = Sharding(setting.world, setting.orig, itemsize, setting.sharded)
    members = unit_members(layout, prefixes, use_orig_params=setting.orig)
    return {prefix: lay_out(prefix, specs, dtype_of(setting), sharding) for prefix, specs in members.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(), settings_of_jobs())
@example(  # tied across units: with use_orig_params only the unit wrapped first flattens it
    Tree(False, ((1,), (1,)), (Tree(True, ((1,),), ()),)),
    Setting(1, True, None, torch.float32, False, ((1, 3),), False, False),
)
@example(  # and without, both do
    Tree(False, ((1,), (1,)), (Tree(True, ((1,),), ()),)),
    Setting(2, False, None, torch.float32, True, ((1, 3),), False, False),
)
def test_layout_and_elements_are_torchs(tree: Tree, setting: Setting) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_rank = [handles(tree, setting, rank) for rank in range(setting.world)]
    units = ours(tree, setting)
    assert set(units) == set(by_rank[0])
    parameters = dict(make(tree, setting).named_parameters(remove_duplicate=False))
    for prefix, unit in units.items():
        flats = [handle[prefix].flat_param for handle in by_rank]
        first = flats[0]
        fqns = [piece.spec.fqn for piece in unit.pieces]
        assert fqns == [f"{prefix}.{name}" if prefix else name for name in first._fqns]
        assert unit.total == first._unpadded_unsharded_size.numel()
        assert [flat.numel() for flat in flats] == [unit.shard] * setting.world
        starts = by_rank[0][prefix]._get_flat_param_offsets()
        kept = [bounds for bounds, padding in zip(starts, _padding(first), strict=True) if not padding]
        assert [(piece.offset, piece.stop - 1) for piece in unit.pieces] == kept
        _check_spans(unit, flats, setting)
        _check_elements(unit, flats, parameters, setting)


def _padding(flat: Any) -> list[bool]:
    mask = getattr(flat, "_is_padding_mask", None)
    return mask if mask is not None else [False] * len(flat._fqns)


def _check_spans(unit: UnitLayout, flats: list[Any], setting: Setting) -> None:
    """What each rank's shard holds of each parameter, in torch's own words."""
    for rank, flat in enumerate(flats):
        for piece, info in zip(unit.pieces, flat._shard_param_infos, strict=True):
            start, stop = span_on_rank(piece.offset, piece.stop, unit.shard, rank if setting.sharded else 0)
            assert stop - start == (info.numel_in_shard or 0)
            if info.in_shard:
                assert start == info.offset_in_shard


def _check_elements(
    unit: UnitLayout, flats: list[Any], parameters: dict[str, torch.Tensor], setting: Setting
) -> None:
    """Every parameter, cut out of the ranks' shards, has its own elements."""
    shards = flats if setting.sharded and setting.world > 1 else flats[:1]
    dtype = dtype_of(setting)
    parts = [MemoryTensor(dtype, (flat.numel(),), tensor_bytes(flat)) for flat in shards]
    whole = ConcatTensor(parts, dtype, (sum(flat.numel() for flat in shards),))
    for piece in unit.pieces:
        for name in piece.names:
            source = cut(whole, piece, True, "test")
            assert tuple(source.shape) == tuple(parameters[name].shape)
            assert bytes_of(source) == tensor_bytes(parameters[name])
