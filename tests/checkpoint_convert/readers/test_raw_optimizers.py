"""Raw per-rank optimizers whose state, ranks or groups are not the usual ones: right, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from comparing import assert_same_tensor
from refusing import fails

from checkpoint_convert.errors import IncompleteError, LayoutError, UnsupportedError
from checkpoint_convert.model import OptimizerContents
from checkpoint_convert.readers.open import ReadOptions, open_source
from checkpoint_convert.values import is_tensor

# One unit of 24 elements: on three ranks of eight `bias` and the first half of `down` are on the second.
SHAPES = {"up.weight": (4, 2), "bias": (4,), "down.weight": (2, 4), "norm": (4,)}
ON_RANKS = [{0: (0, 8)}, {1: (0, 4), 2: (0, 4)}, {2: (4, 8), 3: (0, 4)}]
"""Per rank: parameter number -> its elements there."""

State = dict[str, Any]


def layout(
    folder: Path,
    *,
    orig: bool = True,
    groups: Sequence[Sequence[str]] | None = None,
    whole: str | None = None,
) -> ReadOptions:
    """A captured layout; without `orig` up and down are units of their own, `whole` one with NO_SHARD."""
    path = folder / "layout.json"
    modules = ["", "up", "down"]
    names = list(SHAPES)
    parameters = [
        {
            "fqn": name,
            "shape": shape,
            "stride": torch.empty(shape).stride(),
            "dtype": "float32",
            "requires_grad": True,
            "tensor": number,
            "slot": number,
        }
        for number, (name, shape) in enumerate(SHAPES.items())
    ]
    units: dict[str, list[str]] = {}
    for name in names:
        units.setdefault("" if orig else name.rpartition(".")[0], []).append(name)
    written = {
        "format": "fsdp-migrate layout",
        "version": 1,
        "torch": "2.6.0",
        "world_size": 2 if not orig else 3,
        "use_orig_params": orig,
        "buffers": [],
        "param_groups": groups,
        "parameters": parameters,
        "modules": [{"fqn": module, "classes": ["torch.nn.modules.linear.Linear"]} for module in modules],
        "units": [
            {"prefix": prefix, "members": members} | ({"sharded": False} if prefix == whole else {})
            for prefix, members in units.items()
        ],
    }
    path.write_text(json.dumps(written))
    return ReadOptions(layout_from=path)


def save(folder: Path, ranks: Sequence[dict[int, State]], groups: Sequence[State] | None = None) -> Path:
    ckpt = folder / "ckpt"
    ckpt.mkdir()
    for rank, state in enumerate(ranks):
        listed = groups or [{"lr": 0.1, "params": list(range(len(SHAPES)))}]
        torch.save({"state": state, "param_groups": listed}, ckpt / f"optim_rank{rank}.pt")
    return ckpt


def moment(number: int, start: int, stop: int) -> torch.Tensor:
    return torch.arange(start, stop, dtype=torch.float32) + 100 * number


def expected(number: int) -> torch.Tensor:
    shape = list(SHAPES.values())[number]
    return moment(number, 0, torch.Size(shape).numel()).view(shape)


def read(folder: Path, options: ReadOptions) -> OptimizerContents:
    with open_source([folder], options) as contents:
        assert contents.optimizer is not None
        for name, state in contents.optimizer.state.items():
            found: Any = state["exp_avg"]
            assert_same_tensor(found, expected(list(SHAPES).index(name)), name)
        return contents.optimizer


def pieces(more: Callable[[int, int], State]) -> list[dict[int, State]]:
    """Every rank's state: a moment, and what `more` gives for the rank and the elements it holds."""
    return [
        {
            number: {"exp_avg": moment(number, *span), **more(rank, span[1] - span[0])}
            for number, span in here.items()
        }
        for rank, here in enumerate(ON_RANKS)
    ]


@pytest.mark.parametrize(
    "inner",
    [
        lambda rank, count: {"inner": {"m": torch.zeros(count), "t": 1}},
        lambda rank, count: {"history": [torch.zeros(count)]},
        lambda rank, count: {"pair": (torch.zeros(count), 0.5)},
    ],
)
def test_shards_inside_of_containers_are_refused(tmp_path: Path, inner: Callable[[int, int], State]) -> None:
    ckpt = save(tmp_path, pieces(inner))
    error = fails(
        UnsupportedError, r"state up\.weight\.\w+ is a \w+ with tensors inside", [ckpt], layout(tmp_path)
    )
    assert "--only model" in error.hint


@pytest.mark.parametrize(
    "own",
    [
        lambda rank, count: {"mode": f"of rank {rank}"},
        lambda rank, count: {"seen": [1, rank]},
        lambda rank, count: {"scales": {"a": float(rank)}},
        lambda rank, count: {"trust": torch.tensor(rank + 0.5, dtype=torch.bfloat16)},
        lambda rank, count: {"on": rank == 1},
    ],
)
def test_state_that_only_one_rank_has_so_is_refused(tmp_path: Path, own: Callable[[int, int], State]) -> None:
    """`down.weight` is on two ranks; no value of one of them is the other's."""
    ckpt = save(tmp_path, pieces(own))
    fails(
        IncompleteError, r"state down\.weight\.\w+ is .* on rank 1 and .* on rank 2", [ckpt], layout(tmp_path)
    )


def test_state_that_is_equal_in_its_own_way(tmp_path: Path) -> None:
    nan = float("nan")
    same = {"nothing": None, "loss": nan, "pair": (1, nan), "mode": "a", "half": torch.tensor(nan).bfloat16()}
    found = read(save(tmp_path, pieces(lambda rank, count: dict(same))), layout(tmp_path))
    state = found.state["down.weight"]
    assert state["nothing"] is None and state["mode"] == "a"
    assert is_tensor(state["half"]) and state["half"].shape == ()


def test_ranks_without_elements_have_no_say(tmp_path: Path) -> None:
    """Adagrad makes its state when it is built, of parameters too that a rank holds nothing of."""
    ranks = pieces(lambda rank, count: {"step": torch.tensor(3.0)})
    for state in ranks:
        for number in range(len(SHAPES)):
            state.setdefault(number, {"step": torch.tensor(0.0), "exp_avg": torch.zeros(0)})
    found = read(save(tmp_path, ranks), layout(tmp_path))
    assert len(found.state) == 4
    for state in found.state.values():
        step: Any = state["step"]
        assert_same_tensor(step, torch.tensor(3.0), "step")


def test_replicas_are_ranks_that_hold_the_same(tmp_path: Path) -> None:
    """Where the first rank has state of whole parameters alone, the others are no replicas of it for that."""
    ranks = pieces(lambda rank, count: {})
    assert list(ranks[0]) == [0]
    found = read(save(tmp_path, ranks), layout(tmp_path, groups=[list(SHAPES)]))
    assert set(found.state) == set(SHAPES)


# Groups. With use_orig_params=False the units are the root (bias, norm), up and down; two are of one size.


def flat_ranks(order: Sequence[int]) -> list[dict[int, State]]:
    """Two ranks' state of the three flat parameters in an optimizer's order; 0 is the root, 1 up, 2 down."""
    whole = [torch.cat([moment(1, 0, 4), moment(3, 0, 4)]), moment(0, 0, 8), moment(2, 0, 8)]
    return [
        {at: {"exp_avg": whole[unit].chunk(2)[rank].clone()} for at, unit in enumerate(order)}
        for rank in (0, 1)
    ]


@pytest.mark.parametrize("sizes", [(2, 1), (1, 1, 1)])
def test_groups_that_could_be_exchanged_are_asked_for(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """The usual splits of two groups fit in several ways; of three only the plain order is known."""
    order, named = [0, 2, 1], [["bias", "norm"], ["down.weight"], ["up.weight"]]
    numbers = iter(range(3))
    groups = [{"lr": 0.1, "params": [next(numbers) for _ in range(size)]} for size in sizes]
    ckpt = save(tmp_path, flat_ranks(order), groups)
    reason = "could change places" if len(sizes) == 3 else "several orders of its parameters"
    error = fails(LayoutError, reason, [ckpt], layout(tmp_path, orig=False))
    assert "--param-groups" in error.hint
    if len(sizes) == 2:
        named = [[*named[0], *named[1]], named[2]]
    found = read(ckpt, replace(layout(tmp_path, orig=False), param_groups=named))
    assert [sorted(group.params) for group in found.groups] == [sorted(group) for group in named]


def test_an_empty_group_leaves_nothing_open(tmp_path: Path) -> None:
    groups = [{"lr": 0.1, "params": []}, {"lr": 0.2, "params": [0, 1, 2]}]
    found = read(save(tmp_path, flat_ranks([0, 1, 2]), groups), layout(tmp_path, orig=False))
    assert [len(group.params) for group in found.groups] == [0, 4]


def orig_ranks(order: Sequence[int]) -> list[dict[int, State]]:
    usual = pieces(lambda rank, count: {})
    return [{at: state[number] for at, number in enumerate(order) if number in state} for state in usual]


@pytest.mark.parametrize("decay", [0.1, None])
def test_the_usual_split_by_weight_decay_needs_no_names(tmp_path: Path, decay: float | None) -> None:
    """Sizes decide already, since no vector is as large as a matrix."""
    groups: list[State] = [{"params": [0, 1]}, {"params": [2, 3]}]
    if decay is not None:
        groups[0]["weight_decay"], groups[1]["weight_decay"] = decay, 0.0
    found = read(save(tmp_path, orig_ranks([0, 2, 1, 3]), groups), layout(tmp_path))
    assert [group.params for group in found.groups] == [("up.weight", "down.weight"), ("bias", "norm")]


class WithScalar(torch.nn.Module):
    """A 0-dim parameter, which FSDP1 refuses to flatten: the job told it to ignore it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.up = torch.nn.Linear(2, 4, bias=False)


def test_a_scalar_parameter_was_ignored(tmp_path: Path) -> None:
    scale = {"exp_avg": torch.tensor(7.0)}
    ranks: list[dict[int, State]] = [
        {0: dict(scale), 1: {"exp_avg": moment(0, *span)}} for span in ((0, 4), (4, 8))
    ]
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": [0, 1]}])
    options = ReadOptions(model="test_raw_optimizers:WithScalar", saver_torch="2.6")
    with open_source([ckpt], options) as contents:
        assert contents.optimizer is not None
        found: Any = {name: state["exp_avg"] for name, state in contents.optimizer.state.items()}
        assert_same_tensor(found["scale"], torch.tensor(7.0), "scale")
        assert_same_tensor(found["up.weight"], expected(0), "up.weight")
    fails(LayoutError, "'two' is no version of torch", [ckpt], replace(options, saver_torch="two"))


@pytest.mark.parametrize("local", [False, True])
def test_a_unit_that_was_not_sharded(tmp_path: Path, local: bool) -> None:
    """NO_SHARD inside of FULL_SHARD: each rank has all of it, and LOCAL_STATE_DICT its plain parameter."""
    flats = [torch.cat([moment(1, 0, 4), moment(3, 0, 4)]), moment(0, 0, 8), moment(2, 0, 8)]
    ranks: list[dict[int, State]] = []
    for rank in (0, 1):
        shards = [flat if unit == 1 else flat.chunk(2)[rank].clone() for unit, flat in enumerate(flats)]
        ranks.append({unit: {"exp_avg": shard} for unit, shard in enumerate(shards)})
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": [0, 1, 2]}])
    if local:
        for rank, state in enumerate(ranks):
            shards = {f"{name}_flat_param": state[unit]["exp_avg"] for unit, name in ((0, ""), (2, "down."))}
            model = {**shards, "up.weight": expected(0)}
            torch.save(model, ckpt / f"model_rank{rank}.pt")
    found = read(ckpt, layout(tmp_path, orig=False, whole="up"))
    assert set(found.state) == set(SHAPES)
    if not local:  # there a unit of one parameter looks as if the parameter were ignored, and is that
        fails(LayoutError, "does not fit the model", [ckpt], layout(tmp_path, orig=False))


class Small(torch.nn.Module):
    """The parameters of SHAPES."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(2, 4, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(4))
        self.down = torch.nn.Linear(4, 2, bias=False)
        self.norm = torch.nn.Parameter(torch.zeros(4))


@pytest.mark.parametrize("whole", [0, 2])
def test_units_of_one_size_of_which_one_was_not_sharded(tmp_path: Path, whole: int) -> None:
    """The root holds 16 elements, 8 on a rank; `up` or `down`, 8 elements, is there on both ranks."""
    name = list(SHAPES)[whole]
    rest = [expected(number).reshape(-1) for number in (1, 3, 2 - whole)]  # the root's own come first
    shards = torch.cat(rest).chunk(2)
    ranks: list[dict[int, State]] = [
        {0: {"exp_avg": shards[rank].clone()}, 1: {"exp_avg": moment(whole, 0, 8)}} for rank in (0, 1)
    ]
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": [0, 1]}])
    options = ReadOptions(model="test_raw_optimizers:Small")
    error = fails(LayoutError, "the sizes fit more than one job", [ckpt], options)
    assert "layout.json" in error.hint and "down not sharded" in error.message
    for rank, state in enumerate(ranks):
        # Beside LOCAL_STATE_DICT's files it is the unit of which there is no flat parameter.
        model = {"_flat_param": state[0]["exp_avg"], name: expected(whole)}
        torch.save(model, ckpt / f"model_rank{rank}.pt")
    found = read(ckpt, options)
    assert set(found.state) == set(SHAPES)
    with open_source([ckpt], options) as contents:
        said = [notice.text for notice in contents.notices if notice.code == "CK104"]
    assert len(said) == 1 and said[0].endswith(f"{name.removesuffix('.weight')} not sharded")


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_ranks_share_alone_asks_for_the_others(tmp_path: Path, captured: bool, rank: int) -> None:
    """Rank 0 has all of its one parameter, rank 1 as many elements as a row of another: still shares."""
    ckpt = save(tmp_path, pieces(lambda rank, count: {}))
    options = layout(tmp_path) if captured else ReadOptions(model="test_raw_optimizers:Small")
    said = r"layout\.json, was sharded over 3 ranks" if captured else "does not fit the model"
    kind = IncompleteError if captured else LayoutError
    error = fails(kind, said, [ckpt / f"optim_rank{rank}.pt"], options)
    assert "files of all ranks" in error.hint and "--only model" in error.hint


class Norm(torch.nn.Module):
    """Two parameters of one size in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)


@pytest.mark.parametrize("beside", [False, True])
def test_a_parameter_that_was_ignored_comes_before_its_neighbours(tmp_path: Path, beside: bool) -> None:
    """FSDP1 enters what it flattens, here the weight, into the module anew, behind what it ignores."""
    weight, bias = moment(0, 0, 4), moment(1, 0, 4)
    ranks: list[dict[int, State]] = [
        {0: {"exp_avg": bias.clone()}, 1: {"exp_avg": piece.clone()}} for piece in weight.chunk(2)
    ]
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": [0, 1]}])
    options = ReadOptions(model="test_raw_optimizers:Norm")
    if beside:
        for rank, piece in enumerate(weight.chunk(2)):
            model = {"_flat_param": piece, "norm.weight": piece, "norm.bias": bias}
            torch.save(model, ckpt / f"model_rank{rank}.pt")
    else:
        error = fails(LayoutError, "does not fit the model", [ckpt], options)
        assert "--ignored" in error.hint
        options = replace(options, ignored="norm.bias")
    with open_source([ckpt], options) as contents:
        assert contents.optimizer is not None
        found: Any = {name: state["exp_avg"] for name, state in contents.optimizer.state.items()}
        assert_same_tensor(found["norm.weight"], weight, "weight")
        assert_same_tensor(found["norm.bias"], bias, "bias")
        assert contents.optimizer.groups[0].params == ("norm.bias", "norm.weight")


class Many(torch.nn.Module):
    """Sixty parameters of one size in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.nn.ParameterList(torch.zeros(4) for _ in range(60))


def test_which_of_many_neighbours_were_ignored_is_not_tried_one_by_one(tmp_path: Path) -> None:
    """There are 10^17 ways to choose the thirty of which every rank has the whole state."""
    ranks: list[dict[int, State]] = [
        {at: {"exp_avg": torch.ones(4 if at < 30 else 2)} for at in range(60)} for _ in range(2)
    ]
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": list(range(60))}])
    error = fails(
        LayoutError, "does not fit the model", [ckpt], ReadOptions(model="test_raw_optimizers:Many")
    )
    assert "--ignored" in error.hint


def test_without_state_only_the_groups_matter(tmp_path: Path) -> None:
    """SGD without momentum: whatever was wrapped, the one group has all parameters."""
    ckpt = save(tmp_path, [{}, {}], [{"lr": 0.1, "params": [0, 1, 2]}])
    found = read(ckpt, ReadOptions(model="test_raw_optimizers:Small"))
    assert found.state == {} and {*found.groups[0].params} == set(SHAPES)


def test_replicas_of_flat_parameters_saved_as_plain_tensors(tmp_path: Path) -> None:
    """HYBRID_SHARD: two replicas of two ranks, whose named_parameters() say nothing of it."""
    flat = torch.cat([expected(number).reshape(-1) for number in (1, 3, 0, 2)])
    shards = [flat.chunk(2)[rank % 2].clone() for rank in range(4)]
    ckpt = save(tmp_path, [{0: {"exp_avg": shard}} for shard in shards], [{"lr": 0.1, "params": [0]}])
    for rank, shard in enumerate(shards):
        torch.save({"_flat_param": shard}, ckpt / f"model_rank{rank}.pt")
    with open_source([ckpt], ReadOptions(model="test_raw_optimizers:Small")) as contents:
        for number, name in enumerate(SHAPES):
            assert_same_tensor(contents.model[name], expected(number), name)
    assert set(read(ckpt, ReadOptions(model="test_raw_optimizers:Small")).state) == set(SHAPES)


class Mixed(torch.nn.Module):
    """A unit of each of two classes that is not sharded, and one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(2, 4, bias=False)
        self.norm = torch.nn.LayerNorm(4)
        self.down = torch.nn.Linear(4, 2, bias=False)


def test_unsharded_units_of_two_classes_beside_the_models_files(tmp_path: Path) -> None:
    norm, down = torch.cat([moment(1, 0, 4), moment(3, 0, 4)]), expected(2).reshape(-1).chunk(2)
    ranks: list[dict[int, State]] = [
        {0: {"exp_avg": down[rank].clone()}, 1: {"exp_avg": moment(0, 0, 8)}, 2: {"exp_avg": norm.clone()}}
        for rank in (0, 1)
    ]
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": [0, 1, 2]}])
    beside = {"up.weight": expected(0), "norm.weight": moment(1, 0, 4), "norm.bias": moment(3, 0, 4)}
    for rank in (0, 1):
        torch.save({"_flat_param": down[rank].clone(), **beside}, ckpt / f"model_rank{rank}.pt")
    with open_source([ckpt], ReadOptions(model="test_raw_optimizers:Mixed")) as contents:
        assert contents.optimizer is not None
        found: Any = {name: state["exp_avg"] for name, state in contents.optimizer.state.items()}
        for name, tensor in {**beside, "down.weight": expected(2)}.items():
            assert_same_tensor(found[name], tensor, name)


def test_views_that_were_saved_as_tensors_of_their_own(tmp_path: Path) -> None:
    """LOCAL_STATE_DICT with use_orig_params=True, cloned: nothing shares the flat parameter's storage."""
    order = ("bias", "norm", "up.weight", "down.weight")
    flat = torch.cat([expected(list(SHAPES).index(name)).reshape(-1) for name in order])
    spans = {"bias": [(0, 4), (4, 4)], "norm": [(0, 4), (4, 4)], "up.weight": [(0, 4), (4, 8)]}
    spans["down.weight"] = [(0, 0), (0, 8)]
    ranks: list[dict[int, State]] = [{}, {}]
    models: list[State] = [{"_flat_param": shard.clone()} for shard in flat.chunk(2)]
    for rank in (0, 1):
        for number, name in enumerate(order):
            piece = moment(list(SHAPES).index(name), *spans[name][rank])
            models[rank][name] = piece
            if len(piece):
                ranks[rank][number] = {"exp_avg": piece.clone()}
    ckpt = save(tmp_path, ranks, [{"lr": 0.1, "params": [0, 1, 2, 3]}])
    for rank, model in enumerate(models):
        torch.save(model, ckpt / f"model_rank{rank}.pt")
    found = read(ckpt, ReadOptions(model="test_raw_optimizers:Small"))
    assert set(found.state) == set(SHAPES)


def test_shards_inside_of_containers_by_name_are_refused(tmp_path: Path) -> None:
    """By name FSDP1 hands on a container as it is on each rank, with shards of the flat parameter in it."""
    for rank in (0, 1):
        state = {"w": {"step": torch.tensor(1.0), "inner": {"m": torch.ones(2) + rank}}}
        saved = {"state": state, "param_groups": [{"lr": 0.1, "params": ["w"]}]}
        torch.save(saved, tmp_path / f"optim_rank{rank}.pt")
    error = fails(UnsupportedError, r"w\.inner is another on each rank", [tmp_path], ReadOptions())
    assert "--only model" in error.hint
