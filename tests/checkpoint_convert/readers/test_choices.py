"""Files that hold several models or optimizers: which is taken by itself, and how one is chosen."""

from __future__ import annotations

import json
import pickle
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from typer.testing import CliRunner

from checkpoint_convert.errors import (
    AmbiguousFormatError,
    IncompleteError,
    LayoutError,
    UnreadableError,
    UnsupportedError,
)
from checkpoint_convert.readers.open import ReadOptions, open_source
from fsdp_migrate.cli.app import app
from tests.checkpoint_convert.readers.comparing import assert_same_model, assert_same_state

State = dict[str, Any]


def model(value: float, *names: str) -> State:
    return {name: torch.full((2, 3), value + place) for place, name in enumerate(names or ("a.w", "b.w"))}


def optimizer(value: float, *names: str) -> State:
    state = {name: {"exp_avg": torch.full((2, 3), value)} for name in names or ("a.w", "b.w")}
    return {"state": state, "param_groups": [{"lr": 0.1, "params": list(state)}]}


G, D, EMA = model(1.0), model(5.0, "d.w"), model(9.0)
GAN: State = {
    "generator": G,
    "discriminator": D,
    "ema": {"model": EMA, "decay": 0.9},
    "optimizer_g": optimizer(1.0),
    "optimizer_d": optimizer(5.0, "d.w"),
    "epoch": 3,
}
PARTS: State = {"model": {"vision": model(1.0), "llm": model(2.0, "emb.w")}, "step": 3}
VISION_AND_LLM = {"vision.a.w": 1.0, "vision.b.w": 2.0, "llm.emb.w": 2.0}


@pytest.fixture(params=["torch", "dcp"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def save(state: State) -> Path:
        if request.param == "dcp":
            dcp.save(state, checkpoint_id=tmp_path / "ck", no_dist=True)
        else:
            torch.save(state, tmp_path / "ck")
        return tmp_path / "ck"

    return save


@pytest.mark.parametrize(
    ("keys", "wanted", "wanted_optimizer"),
    [
        (["generator", "optimizer_g"], G, GAN["optimizer_g"]),
        (["discriminator", "optimizer_d"], D, GAN["optimizer_d"]),
        (["ema", "optimizer_g"], EMA, GAN["optimizer_g"]),
        (["ema.model", "optimizer_g"], EMA, GAN["optimizer_g"]),
        (["model", "optimizer_g"], EMA, GAN["optimizer_g"]),
    ],
)
def test_each_can_be_chosen(keys: Sequence[str], wanted: State, wanted_optimizer: State, saved: Any) -> None:
    with open_source([saved(GAN)], ReadOptions(keys=tuple(keys))) as contents:
        assert_same_model(contents, wanted)
        assert_same_state(contents.optimizer, wanted_optimizer["state"])
        assert contents.extras["epoch"] == 3 and not contents.loadable_as_is
        assert not any(name.startswith(("generator", "optimizer")) for name in contents.extras)
        (notice,) = contents.notices
        assert notice.code == "CK107" and notice.text.count("--from-key") == 1
        others = {"generator", "discriminator", "ema.model", "optimizer_g", "optimizer_d"}
        left = set(notice.text.partition("source: ")[2].partition(" (--")[0].split(", "))
        assert len(left) == 3 and left < others and not left & set(keys)


def test_what_could_be_meant_is_listed_with_the_option(saved: Any) -> None:
    two = {"actor": G, "critic": D, "optimizer": optimizer(1.0)}
    path, said = saved(two), "could be the model: actor, critic"
    with pytest.raises(AmbiguousFormatError, match=said) as caught, open_source([path]):
        pass
    assert "--from-key actor" in caught.value.hint


def test_two_optimizers_ask_for_one_unless_the_model_is_wanted_alone(saved: Any) -> None:
    path = saved({"model": G, "adam": optimizer(1.0), "muon": optimizer(2.0)})
    with pytest.raises(AmbiguousFormatError, match="2 optimizers: adam, muon") as caught, open_source([path]):
        pass
    assert "--from-key adam" in caught.value.hint and "--only model" in caught.value.hint
    with open_source([path], ReadOptions(use_optimizer=False)) as contents:
        assert_same_model(contents, G)
        assert contents.optimizer is None and not contents.extras
    with open_source([path], ReadOptions(keys=("muon",))) as contents:
        assert_same_state(contents.optimizer, optimizer(2.0)["state"])


@pytest.mark.parametrize("keys", [("adam", "muon"), ("optimizers",), ("optimizers.adam", "optimizers.muon")])
def test_two_optimizers_of_one_model_are_taken_together(saved: Any, keys: tuple[str, ...]) -> None:
    both = {"adam": optimizer(1.0, "a.w"), "muon": optimizer(2.0, "b.w")}
    nested = {"model": G, "optimizers": both} if keys[0] != "adam" else {"model": G, **both}
    with open_source([saved(nested)], ReadOptions(keys=keys)) as contents:
        assert_same_state(contents.optimizer, {**both["adam"]["state"], **both["muon"]["state"]})
        assert contents.optimizer is not None
        assert [list(group.params) for group in contents.optimizer.groups] == [["a.w"], ["b.w"]]
        assert not contents.extras and not contents.notices


def test_optimizers_that_cannot_be_of_one_model_do_not_join(saved: Any) -> None:
    options = ReadOptions(keys=("adam", "muon"))
    same = {"model": G, "adam": optimizer(1.0, "a.w"), "muon": optimizer(2.0)}
    with pytest.raises(UnsupportedError, match=r"adam and muon both have state of a\.w"):
        open_source([saved(same)], options).__enter__()
    with open_source([saved(same)], replace(options, only_listed=True)) as contents:
        assert_same_model(contents, G)
    for muon in (optimizer(2.0, "b.w"), numbered({1: (2, 3)})):
        path = saved({"model": G, "adam": numbered({0: (2, 3)}), "muon": muon})
        with pytest.raises(UnsupportedError, match="muon does not number its parameters from 0"):
            open_source([path], options).__enter__()
        with open_source([path], replace(options, use_optimizer=False)) as contents:
            assert_same_model(contents, G)
            assert contents.optimizer is None


def numbered(shapes: dict[int, tuple[int, ...]], value: float = 1.0) -> State:
    """An optimizer's state by number, each element telling its number."""
    state = {number: {"exp_avg": torch.full(shape, value + number)} for number, shape in shapes.items()}
    return {"state": state, "param_groups": [{"lr": 0.1, "params": list(shapes)}]}


def test_optimizers_of_one_model_that_number_their_parameters(tmp_path: Path) -> None:
    """Each counts from 0: sizes that only one of them has tell whose they are, else the user does."""
    shapes = {"embed": (5, 3), "a.w": (2, 3), "a.b": (2,), "b.w": (3, 2), "b.b": (3,), "head": (5, 3)}
    net = {name: torch.zeros(shape) for name, shape in shapes.items()}
    options = ReadOptions(keys=("adam", "muon"))
    path = tmp_path / "ck.pt"
    adam = numbered({0: (5, 3), 1: (2,), 2: (3,), 3: (5, 3)}, 10.0)
    torch.save({"model": net, "adam": adam, "muon": numbered({0: (2, 3), 1: (3, 2)})}, path)
    groups = [["embed", "a.b", "b.b", "head"], ["a.w", "b.w"]]
    told = dict(zip([*groups[0], *groups[1]], (10.0, 11.0, 12.0, 13.0, 1.0, 2.0), strict=True))
    wanted = {name: {"exp_avg": torch.full(shapes[name], value)} for name, value in told.items()}
    with open_source([path], options) as contents:
        assert_same_state(contents.optimizer, wanted)
        assert contents.optimizer is not None
        assert [list(group.params) for group in contents.optimizer.groups] == groups
    torch.save({"model": G, "adam": numbered({0: (2, 3)}), "muon": numbered({0: (2, 3)}, 5.0)}, path)
    with pytest.raises(LayoutError, match=r"a\.w and b\.w are of one size") as caught:
        open_source([path], options).__enter__()
    assert "--param-groups" in caught.value.hint
    with open_source([path], replace(options, param_groups=[["b.w"], ["a.w"]])) as contents:
        state = {"b.w": {"exp_avg": torch.full((2, 3), 1.0)}, "a.w": {"exp_avg": torch.full((2, 3), 5.0)}}
        assert_same_state(contents.optimizer, state)


def test_a_list_of_state_dicts(tmp_path: Path) -> None:
    """The model may stand in a list, beside its optimizer; not where one stands outside of lists."""
    path = tmp_path / "ck.pt"
    values = ([G, optimizer(1.0), 3], {"nets": [G], "opts": (optimizer(1.0),), "epoch": 3})
    for value in values:
        torch.save(value, path)
        with open_source([path]) as contents:
            assert_same_model(contents, G)
            assert_same_state(contents.optimizer, optimizer(1.0)["state"])
            assert list(contents.extras.values()) == [3] and not contents.notices
    torch.save({"net_g": G, "queue": [{"features": torch.ones(3, 4)}]}, path)
    with open_source([path]) as contents:
        assert_same_model(contents, G)
    torch.save([G, D], path)
    with pytest.raises(AmbiguousFormatError, match="more than one part could be the model: 0, 1"):
        open_source([path]).__enter__()
    with open_source([path], ReadOptions(keys=("1",))) as contents:
        assert_same_model(contents, D)


def test_a_model_that_was_saved_in_parts_is_taken_together(saved: Any) -> None:
    path = saved(PARTS)
    with pytest.raises(AmbiguousFormatError) as caught, open_source([path]):
        pass
    assert "--from-key model takes them together" in caught.value.hint
    with open_source([path], ReadOptions(keys=("model",))) as contents:
        whole = {name: torch.full((2, 3), value) for name, value in VISION_AND_LLM.items()}
        assert_same_model(contents, whole)
        assert contents.extras == {"step": 3} and not contents.notices
    with open_source([path], ReadOptions(keys=("llm",))) as contents:
        assert_same_model(contents, PARTS["model"]["llm"])


def test_a_model_at_the_top_is_meant_before_those_in_containers(saved: Any) -> None:
    state = {"model": G, "ema": {"state": {"model": EMA}}, "best": {"model": D}}
    with open_source([saved(state)]) as contents:
        assert_same_model(contents, G)
        assert set(contents.extras) == {"ema", "best"}


@pytest.mark.parametrize("names", [["losses"], ["losses", "lr"]])
@pytest.mark.parametrize("name", ["model", "unet"])
def test_records_beside_a_model_are_no_model(names: list[str], name: str, saved: Any) -> None:
    records = {one: torch.rand(7) for one in names}
    weights = model(1.0, "a.w", "b.w", "c.w")
    with open_source([saved({name: weights, **records})]) as contents:
        assert_same_model(contents, weights)
        assert set(contents.extras) == set(records)


def test_a_name_that_is_nothing_there_is_refused_with_those_that_are(saved: Any) -> None:
    path, keys = saved({"actor": G, "critic": D}), ReadOptions(keys=("actor", "teacher"))
    with pytest.raises(UnreadableError, match="called teacher") as caught, open_source([path], keys):
        pass
    assert "actor, critic" in caught.value.hint


def test_a_choice_of_the_one_asks_for_the_other_too(saved: Any) -> None:
    path = saved(GAN)
    asked = {"generator": "optimizers: optimizer_g, optimizer_d", "optimizer_g": "could be the model"}
    for key, said in asked.items():
        keys = ReadOptions(keys=(key,))
        with pytest.raises(AmbiguousFormatError, match=said) as caught, open_source([path], keys):
            pass
        assert f"--from-key {key} names none of them" in caught.value.message
    with pytest.raises(AmbiguousFormatError) as caught, open_source([path], ReadOptions(keys=("ema",))):
        pass
    assert "--from-key ema,optimizer_g" in caught.value.hint


def test_two_of_one_kind_are_refused(saved: Any) -> None:
    path, keys = saved(GAN), ReadOptions(keys=("generator", "discriminator"))
    said = "more than one model: generator, discriminator"
    with pytest.raises(AmbiguousFormatError, match=said), open_source([path], keys):
        pass


def test_outputs_of_one_file_one_after_the_other(tmp_path: Path) -> None:
    torch.save(GAN, tmp_path / "gan.pt")
    torch.save({"ema": EMA, "generator": G}, tmp_path / "reference.pt")
    runner = CliRunner()

    def convert(*options: str) -> None:
        done = runner.invoke(app, ["convert-ckpt", str(tmp_path / "gan.pt"), *options])
        assert done.exit_code == 0, done.output

    reference = ["--against", str(tmp_path / "reference.pt"), "--only", "model"]
    convert(str(tmp_path / "g.pt"), "--to", "torch", "--from-key", "generator,optimizer_g")
    convert(str(tmp_path / "ema"), "--to", "safetensors", "--from-key", "ema", *reference)
    convert(str(tmp_path / "d"), "--from-key", "discriminator,optimizer_d")
    state = torch.load(tmp_path / "g.pt", weights_only=True)
    assert set(state) == {"model", "optim", "epoch", "ema.decay"}
    assert all(torch.equal(state["model"][name], tensor) for name, tensor in G.items())
    found = {"model": {"d.w": torch.zeros(2, 3)}}
    dcp.load(found, checkpoint_id=tmp_path / "d", no_dist=True)
    assert torch.equal(found["model"]["d.w"], D["d.w"])
    report = json.loads((tmp_path / "ema" / "conversion.json").read_text())
    assert "--from-key takes one of them" in json.dumps(report["notices"])


WHOLE_NUMBERS = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.uint16]
HALVES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32, torch.complex128]


@pytest.mark.parametrize("dtype", [*WHOLE_NUMBERS, *HALVES], ids=str)
@pytest.mark.parametrize("container", [None, "model", "net"])
def test_a_model_is_known_by_names_whatever_its_elements_are(
    dtype: torch.dtype, container: str | None, tmp_path: Path
) -> None:
    weights = {name: torch.zeros(2, 3, dtype=dtype) for name in ("a.weight", "a.bias", "scale")}
    rng = {"cpu": torch.zeros(16, dtype=torch.uint8), "cuda": torch.zeros(16, dtype=torch.uint8)}
    state = {**weights, "epoch": 1} if container is None else {container: weights, "rng": rng, "epoch": 1}
    torch.save(state, tmp_path / "a.pt")
    with open_source([tmp_path / "a.pt"]) as contents:
        assert list(contents.model) == list(weights)
        assert all(
            source.dtype.torch_name == str(dtype).rpartition(".")[2] for source in contents.model.values()
        )
        assert "epoch" in contents.extras


def test_states_of_generators_and_samplers_are_no_model(tmp_path: Path) -> None:
    sampler = {"order.indices": torch.arange(9), "seed": torch.tensor([3])}
    torch.save({"rng": {"cpu": torch.get_rng_state()}, "sampler": sampler}, tmp_path / "a.pt")
    said = "neither a model nor an optimizer"
    with pytest.raises(UnreadableError, match=said), open_source([tmp_path / "a.pt"]):
        pass


@pytest.mark.parametrize("key", [None, "model", "trainer.module", "net_g", 0, "nets.0"])
@pytest.mark.parametrize("optimizer", ["none", "state", "object"])
def test_the_way_from_a_pickled_module_is_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | int | None, optimizer: str
) -> None:
    """What the message says is run, and the result converts, with all there was beside the module."""
    module = torch.nn.Linear(3, 2)
    adam = torch.optim.AdamW(module.parameters())
    module(torch.ones(3)).sum().backward()
    adam.step()
    value: Any = module
    if key == 0:
        value = [module, None]
    else:
        for part in reversed(str(key).split(".") if key else ()):
            value = {part: value} if part != "0" else [value]
    if key is not None and optimizer != "none":
        value[1 if key == 0 else "optimizer"] = adam if optimizer == "object" else adam.state_dict()
    path = tmp_path / "whole.pt"
    torch.save(value, path)
    options = ReadOptions()
    if key in ("net_g", 0, "nets.0") and optimizer == "state":  # it may be anything
        return
    with pytest.raises(UnsupportedError, match=r"of class torch\.nn\.modules\.linear\.Linear") as caught:
        open_source([path], options).__enter__()
    assert ("--only optim" in caught.value.hint) == (key is not None and optimizer == "state")
    program = re.search(r"run in Python: (.*) and convert (state\.pt)\.", caught.value.hint)
    assert program is not None
    monkeypatch.chdir(tmp_path)
    exec(program[1], {"torch": torch})
    with open_source([tmp_path / program[2]], options) as contents:
        assert_same_model(contents, dict(module.state_dict()))
        kept = optimizer != "none" and key not in (None, 0, "nets.0")  # of a list the module alone
        assert (contents.optimizer is not None) == kept


def test_settings_called_model_are_no_pickled_module(tmp_path: Path) -> None:
    """Beside an optimizer that is converted alone, only what is a module may be the model that was meant."""
    path = tmp_path / "optim.pt"
    torch.save({"optimizer": optimizer(1.0), "cfg": {"model": Namespace(layers=3)}}, path)
    with open_source([path]) as contents:
        assert_same_state(contents.optimizer, optimizer(1.0)["state"])
        assert contents.model == {} and [notice.code for notice in contents.notices] == ["CK101"]
    torch.save({"optimizer": optimizer(1.0), "cfg": {"model": torch.nn.Linear(2, 3)}}, path)
    with pytest.raises(UnsupportedError, match=r"cfg\.model is an object of class torch\.nn") as caught:
        open_source([path]).__enter__()
    assert "saved['cfg']['model'] = saved['cfg']['model'].state_dict()" in caught.value.hint


def test_a_model_in_parts_brings_all_of_its_optimizer(tmp_path: Path) -> None:
    """Each stage of a pipeline saves its own parameters, and an optimizer of them."""
    for number, name in enumerate(("a.w", "b.w")):
        stage = {"model": model(number, name), "optimizer": optimizer(number, name), "seed": number}
        torch.save(stage, tmp_path / f"stage_{number}.pt")
    with open_source([tmp_path]) as contents:
        assert set(contents.model) == {"a.w", "b.w"} and contents.optimizer is not None
        wanted = {**optimizer(0, "a.w")["state"], **optimizer(1, "b.w")["state"]}
        assert_same_state(contents.optimizer, wanted)
        assert [list(group.params) for group in contents.optimizer.groups] == [["a.w"], ["b.w"]]
        assert contents.extras == {"seed": 0}
        assert [notice.code for notice in contents.notices] == ["CK102"]
    for number, name in enumerate(("a.w", "b.w")):
        stage = {"model": model(number, name), "optimizer": numbered({0: (2, 3)}, number)}
        torch.save(stage, tmp_path / f"stage_{number}.pt")
    with open_source([tmp_path]) as contents:
        assert_same_state(contents.optimizer, wanted)
    stage["model"]["b.count"] = torch.zeros(2, 3)
    torch.save(stage, tmp_path / "stage_1.pt")
    with pytest.raises(LayoutError, match="by parameter numbers"):
        open_source([tmp_path]).__enter__()
    with open_source([tmp_path], ReadOptions(use_optimizer=False)) as contents:
        assert set(contents.model) == {"a.w", "b.w", "b.count"}


@pytest.mark.parametrize("names", [("a.w", "b.w"), ("a.w", "a.w")])
@pytest.mark.parametrize(
    ("key", "values", "refused"),
    [
        ("iteration", (3, 4), "iteration is 3 in"),
        ("scheduler", ({"last_epoch": 3}, {"last_epoch": 4}), r"scheduler\.last_epoch is 3 in"),
        ("iteration", (3, 3), ""),
        ("seed", (3, 4), ""),
    ],
)
def test_stages_and_copies_of_different_moments_do_not_mix(
    tmp_path: Path, names: Sequence[str], key: str, values: Sequence[Any], refused: str
) -> None:
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        torch.save({"model": model(1.0, name), key: value}, tmp_path / f"stage_{number}.pt")
    if refused:
        with pytest.raises(IncompleteError, match=rf"{refused} .*stage_0\.pt and 4 in .*stage_1\.pt"):
            open_source([tmp_path]).__enter__()
    else:
        with open_source([tmp_path]) as contents:
            assert_same_model(contents, model(1.0, names[0]) | model(1.0, names[1]))
            assert contents.extras == {key: 3}


@pytest.mark.parametrize("value", [model(1.0), {"model": model(1.0), "optim": optimizer(1.0)}])
def test_what_pickle_wrote_is_told_and_beside_others_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: State
) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(UnsupportedError, match=r"pickle\.dump wrote it") as caught:
        open_source([path]).__enter__()
    program = re.search(r"in Python: (.*) and convert (saved\.pt)\.", caught.value.hint)
    assert program is not None
    monkeypatch.chdir(tmp_path)
    exec(program[1])
    with open_source([tmp_path]) as contents:
        assert_same_model(contents, model(1.0))
        assert [notice.code for notice in contents.notices] == ["CK101"]
