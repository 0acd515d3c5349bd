"""`verify-ckpt`: whatever happens to an output after it was written is found, and named."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from checkpoint_convert.convert import ConvertOptions, convert
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.parallel import Workers
from checkpoint_convert.progress import Silent
from checkpoint_convert.readers.open import ReadOptions, open_source
from checkpoint_convert.recheck import Recheck, recheck
from checkpoint_convert.write_options import OutputFormat, Part, Preset, WriteOptions
from checkpoint_convert.writers.safetensors import GROUPS_NAME


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.mid = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("seen", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.mid(self.emb(x)))
        return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.arange(5)).sum().backward()
    optimizer.step()
    names = {id(p): n for n, p in model.named_parameters()}
    state = optimizer.state_dict()
    state["state"] = {names[id(p)]: v for p, v in optimizer.state.items()}
    state["param_groups"][0]["params"] = list(names.values())
    path = tmp_path_factory.mktemp("source") / "full.pt"
    extras = {"epoch": 3, "rng": torch.get_rng_state(), "scheduler": {"last": [1, 2]}}
    torch.save({"model": model.state_dict(), "optim": state, **extras}, path)
    return path


def converted(source: Path, target: Path, write: WriteOptions) -> Path:
    read = ReadOptions(model_key=write.model_key)
    with open_source([source]) as contents:
        options = ConvertOptions(write=write)
        convert(contents, target, options, reopen=lambda path: open_source([path], read))
    return target


def checked(target: Path) -> Recheck:
    return recheck(target, Workers(2), Silent())


FORMS = {
    "dcp": WriteOptions(),
    "keys": WriteOptions(model_key="state_dict", optim_key="optimizer"),
    "shards": WriteOptions(shards=3),
    **{
        preset.value: WriteOptions(preset=preset, model_key=preset.model_key, optim_key=preset.optim_key)
        for preset in (Preset.TORCHTITAN, Preset.ACCELERATE, Preset.LIGHTNING)
    },
    "model": WriteOptions(only=Part.MODEL),
    "optim": WriteOptions(only=Part.OPTIM),
    "safetensors": WriteOptions(to=OutputFormat.SAFETENSORS),
    "torch": WriteOptions(to=OutputFormat.TORCH),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_output_of_a_stateless_optimizer_is_what_its_report_says(tmp_path: Path, form: str) -> None:
    groups = [{"lr": 0.1, "params": ["a", "b"]}, {"lr": 0.2, "params": []}]
    saved = {
        "model": {"a": torch.ones(2, 2), "b": torch.ones(3)},
        "optim": {"state": {}, "param_groups": groups},
    }
    torch.save(saved, tmp_path / "full.pt")
    found = checked(converted(tmp_path / "full.pt", tmp_path / "out", FORMS[form]))
    assert found.problems == ()


@pytest.mark.parametrize("form", FORMS)
def test_an_output_is_what_its_report_says(source: Path, tmp_path: Path, form: str) -> None:
    target = converted(source, tmp_path / "out", FORMS[form])
    path = target / "conversion.json" if target.is_dir() else tmp_path / "out.conversion.json"
    found = checked(target)
    assert found.problems == ()
    report = json.loads(path.read_text())
    assert found.tensors == len(report["tensors"]) > 0
    assert found.values == len(report["values"])


@pytest.mark.parametrize("form", FORMS)
def test_a_flipped_byte_of_any_tensor_is_found(source: Path, tmp_path: Path, form: str) -> None:
    target = converted(source, tmp_path / "out", FORMS[form])
    files = [target] if target.is_file() else [p for p in target.rglob("*") if p.is_file()]
    flipped: set[str] = set()
    for file in files:
        data = file.read_bytes()
        for name, values in matrices(source):
            at = data.find(values)
            if at >= 0:
                at += len(values) - 1
                file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
                problems = checked(target).problems
                assert len(problems) >= 1 and all(name in problem for problem in problems)
                flipped.add(name)
        file.write_bytes(data)
    names = {name for name, _ in matrices(source)}
    assert flipped == {
        "model": {n for n in names if "exp" not in n},
        "optim": {n for n in names if "exp" in n},
    }.get(form, names)
    assert checked(target).problems == ()


def matrices(source: Path) -> list[tuple[str, bytes]]:
    """A name that a report of it shows, and the first bytes of every tensor that is no scalar."""
    held = torch.load(source, weights_only=True)
    found = [(name, value) for name, value in held["model"].items() if name != "head.weight"]
    for name, state in held["optim"]["state"].items():
        found += [(f"{name}.{kind}", value) for kind, value in state.items()]
    rows = [(name, value.reshape(-1)[:2].numpy().tobytes()) for name, value in found if value.ndim]
    return [(name.replace("emb.weight", ".weight"), row) for name, row in rows]


def cut_short(target: Path) -> str:
    file = max(target.glob("*.distcp"), key=lambda p: p.stat().st_size)
    file.write_bytes(file.read_bytes()[:-8])
    return file.name


def taken_away(target: Path) -> str:
    file = max(target.glob("*.distcp"), key=lambda p: p.stat().st_size)
    file.unlink()
    return file.name


def of_another_model(target: Path) -> str:
    report = json.loads((target / "conversion.json").read_text())
    report["tensors"] = [row for row in report["tensors"] if row["key"] != "model.mid.bias"]
    (target / "conversion.json").write_text(json.dumps(report))
    return "model.mid.bias is not in the report"


def with_a_row_more(target: Path) -> str:
    report = json.loads((target / "conversion.json").read_text())
    report["tensors"].append({**report["tensors"][0], "key": "model.more"})
    (target / "conversion.json").write_text(json.dumps(report))
    return "model.more is gone"


def of_another_shape(target: Path) -> str:
    report = json.loads((target / "conversion.json").read_text())
    row = next(row for row in report["tensors"] if row["key"] == "model.mid.weight")
    row["shape"] = [36]
    (target / "conversion.json").write_text(json.dumps(report))
    return "model.mid.weight is float32 [6, 6], float32 [36] was written"


def of_another_epoch(target: Path) -> str:
    report = json.loads((target / "conversion.json").read_text())
    next(row for row in report["values"] if row["key"] == "epoch")["digest"] = "00"
    (target / "conversion.json").write_text(json.dumps(report))
    return "epoch is not what was written"


def with_another_epoch(target: Path) -> str:
    """A value, in a file of the same length."""
    file = target / "__0_0.distcp"
    data = file.read_bytes()
    at = data.index(b"K\x03.")  # the pickle of 3
    file.write_bytes(data[: at + 1] + b"\x04" + data[at + 2 :])
    return "do not match the CRC-32"


def without_the_epoch(target: Path) -> str:
    report = json.loads((target / "conversion.json").read_text())
    report["values"] = [row for row in report["values"] if row["key"] != "epoch"]
    (target / "conversion.json").write_text(json.dumps(report))
    return "epoch is not in the report"


@pytest.mark.parametrize(
    "harm",
    [
        without_the_epoch,
        cut_short,
        taken_away,
        of_another_model,
        with_a_row_more,
        of_another_shape,
        of_another_epoch,
        with_another_epoch,
    ],
)
def test_what_happened_is_named(source: Path, tmp_path: Path, harm: Callable[[Path], str]) -> None:
    target = converted(source, tmp_path / "out", WriteOptions())
    named = harm(target)
    problems = checked(target).problems
    assert any(named in problem for problem in problems), problems


def test_a_tensor_gone_from_one_of_its_places_is_not_equal(source: Path, tmp_path: Path) -> None:
    target = converted(source, tmp_path / "out", WriteOptions())
    whole = checked(target)
    report = json.loads((target / "conversion.json").read_text())
    row = next(row for row in report["tensors"] if row["key"] == "model.mid.bias")
    row["at"] = ["model.mid.bias", "model.elsewhere"]
    (target / "conversion.json").write_text(json.dumps(report))
    found = checked(target)
    assert found.problems == ("model.elsewhere is gone",)
    assert found.tensors == whole.tensors - 1


@pytest.mark.parametrize("content", [b"", b"[", b"null", b"[1]", b"[[1]]", b"\xff", b"{}", b"[{}]"])
def test_damaged_groups_beside_safetensors_are_named(source: Path, tmp_path: Path, content: bytes) -> None:
    target = converted(source, tmp_path / "out", FORMS["safetensors"])
    (target / GROUPS_NAME).write_bytes(content)
    problems = checked(target).problems
    assert any("param_groups" in problem for problem in problems), problems


@pytest.mark.parametrize("form", ["dcp", "torchtitan", "safetensors"])
def test_a_report_from_which_something_was_lost(source: Path, tmp_path: Path, form: str) -> None:
    """Whatever is missing, it is no fault of the program."""
    target = converted(source, tmp_path / "out", FORMS[form])
    path = target / "conversion.json"
    whole = path.read_text()
    needed = {"to", "layout", "keys", "files", "tensors", "values"}
    for name in json.loads(whole).keys() - {"version", "digest"}:
        report = json.loads(whole)
        del report[name]
        path.write_text(json.dumps(report))
        if name in needed:
            with pytest.raises(UnreadableError, match=f"is damaged .KeyError.'{name}'"):
                checked(target)
        else:
            assert checked(target).problems == ()
    for part in ("files", "tensors", "values"):
        for name in json.loads(whole)[part][0]:
            report = json.loads(whole)
            del report[part][0][name]
            path.write_text(json.dumps(report))
            if name != "at":
                with pytest.raises(UnreadableError, match=f"is damaged .KeyError.'{name}'"):
                    checked(target)


@pytest.mark.parametrize("digests", [[], None, "x"])
def test_digests_of_files_that_are_no_mapping_are_damage(
    source: Path, tmp_path: Path, digests: object
) -> None:
    target = converted(source, tmp_path / "out", WriteOptions())
    report = json.loads((target / "conversion.json").read_text())
    (target / "conversion.json").write_text(json.dumps(report | {"file_digests": digests}))
    with pytest.raises(UnreadableError, match="is damaged"):
        checked(target)


def test_files_that_cannot_be_read_are_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = converted(source, tmp_path / "out", WriteOptions())
    lost = target / "__0_0.distcp"

    def refuse(path: Path, flags: int) -> int:
        if path == lost:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, flags)

    opened = os.open
    monkeypatch.setattr(os, "open", refuse)
    problems = checked(target).problems
    said = f"{lost}: cannot be opened: Permission denied"
    assert problems == (f"file {lost.name} cannot be read: {said}", f"it cannot be opened: {said}")


def test_tensors_shared_with_the_source_are_counted_as_not_read(source: Path, tmp_path: Path) -> None:
    first = converted(source, tmp_path / "first", WriteOptions())
    second = converted(first, tmp_path / "second", WriteOptions(link=True))
    found = checked(second)
    assert found.problems == ()
    assert found.unread > 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "has no report"),
        ("{", "is no report of a conversion"),
        ("[]", "is no report of a conversion"),
        ('{"version": 2, "digest": "xxh3_128"}', "version 2"),
    ],
)
def test_without_a_report_nothing_is_judged(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "conversion.json").write_text(content)
    with pytest.raises(UnreadableError, match=says) as raised:
        checked(tmp_path)
    assert raised.value.hint


@pytest.mark.parametrize("form", ["dcp", "shards", Preset.ACCELERATE.value])
def test_what_is_around_the_tensors_counts_too(source: Path, tmp_path: Path, form: str) -> None:
    """A name in a header, a table of pieces: torch loads nothing without, and no tensor's digest shows it."""
    target = converted(source, tmp_path / "out", FORMS[form])
    assert not checked(target).problems
    for file in sorted([*target.rglob("*.distcp"), *target.rglob(".metadata")]):
        whole = file.read_bytes()
        for mark in (
            b"archive/data.pkl",
            b"archive/version",
            b"archive/data/0",
            b"PK\x05\x06",
            b"_rebuild_tensor",
        ):
            for at in {whole.find(mark), whole.rfind(mark)} - {-1}:
                changed = bytearray(whole)
                changed[at + 3] ^= 1
                file.write_bytes(changed)
                assert checked(target).problems, (file.name, mark, at)
        file.write_bytes(whole)
    assert not checked(target).problems
