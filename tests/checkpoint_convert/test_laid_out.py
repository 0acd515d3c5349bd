"""Outputs of very many chunks are read back where they were laid out, and no less is found."""

from __future__ import annotations

import filecmp
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from checkpoint_convert import laid_out, stored_entries
from checkpoint_convert.convert import ConvertOptions, convert
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.readers import dcp_part, safetensors
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.write_options import OutputFormat, Preset, WriteOptions
from checkpoint_convert.writers.dcp import DcpLayout
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.safetensors import SafetensorsLayout
from checkpoint_convert.writers.torch_file import TorchFileLayout


def save(path: Path) -> None:
    tied = torch.randn(6, 5)
    model = {
        "emb": tied,
        "head": tied,
        "scale": torch.tensor(2.5),
        "none": torch.empty(0, 3),
        "w": torch.ones(9),
    }
    state = {"w": {"step": torch.tensor(3.0), "exp_avg": torch.full((9,), 0.25)}}
    group = {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "params": ["w"]}
    torch.save({"model": model, "optim": {"state": state, "param_groups": [group]}, "epoch": 3}, path)


def run(folder: Path, name: str, preset: Preset = Preset.TORCH, to: OutputFormat = OutputFormat.DCP) -> Path:
    file_bytes = 60 if to is OutputFormat.SAFETENSORS else None
    write = WriteOptions(to=to, chunk_bytes=40, file_bytes=file_bytes, preset=preset)
    with open_source([folder / "full.pt"]) as contents:
        convert(contents, folder / name, ConvertOptions(write), reopen=lambda path: open_source([path]))
    return folder / name


@pytest.mark.parametrize("preset", list(Preset))
def test_the_output_is_the_same_and_is_not_opened_as_a_checkpoint(
    preset: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "full.pt")
    few = run(tmp_path, "few", preset)
    asked: list[str] = []
    read_item = laid_out.read_item

    def noted(files: object, path: Path, start: int, size_bytes: int) -> object:
        asked.append(path.name)
        return read_item(files, path, start, size_bytes)  # type: ignore[arg-type]

    def unread(files: object, directory: Path) -> None:
        raise AssertionError(f"{directory} was opened as a checkpoint")

    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3)
    monkeypatch.setattr(laid_out, "read_item", noted)
    monkeypatch.setattr(stored_entries, "read_dcp", unread)
    monkeypatch.setattr(dcp_part, "read_dcp", unread)
    many = run(tmp_path, "many", preset)
    names = sorted(path.relative_to(few).as_posix() for path in few.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(few, many, names, shallow=False) == (names, [], [])
    # lr, betas, eps, weight_decay, params, epoch; torchtitan's has no list of names, the others no epoch.
    assert asked == ["__0_0.distcp"] * (6 if preset is Preset.TORCH else 5)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def metadata(folder: Path) -> None:
    flip(folder / ".metadata", -40)


def elements(folder: Path) -> None:
    data = (folder / "__0_1.distcp").read_bytes()
    flip(folder / "__0_1.distcp", data.index(torch.full((9,), 0.25).numpy().tobytes()))


def dtype(folder: Path) -> None:
    data = (folder / "__0_1.distcp").read_bytes()
    path = folder / "__0_1.distcp"
    path.write_bytes(data.replace(b"FloatStorage", b"ShortStorage", 1))


def value(folder: Path) -> None:
    data = (folder / "__0_0.distcp").read_bytes()
    flip(folder / "__0_0.distcp", data.index(struct.pack(">d", 0.1)) + 7)


def cut_off(folder: Path) -> None:
    path = folder / "__0_1.distcp"
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("preset", [Preset.TORCH, Preset.TORCHTITAN])
@pytest.mark.parametrize("damage", [metadata, elements, dtype, value, cut_off])
def test_damage_is_found(
    preset: Preset, damage: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "full.pt")
    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3)
    finish = DcpLayout.finish

    def finish_and_damage(self: DcpLayout, out: Output) -> None:
        finish(self, out)
        damage(out.directory)

    monkeypatch.setattr(DcpLayout, "finish", finish_and_damage)
    with pytest.raises(UnreadableError):
        run(tmp_path, "out", preset)
    assert [path.name for path in tmp_path.iterdir()] == ["full.pt"]


def test_safetensors_are_the_same_and_are_not_opened_as_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "full.pt")
    few = run(tmp_path, "few", to=OutputFormat.SAFETENSORS)

    def unread(*_: object) -> None:
        raise AssertionError("opened as a checkpoint")

    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3)
    monkeypatch.setattr(safetensors, "read_safetensors", unread)
    many = run(tmp_path, "many", to=OutputFormat.SAFETENSORS)
    names = sorted(path.relative_to(few).as_posix() for path in few.rglob("*") if path.is_file())
    assert len(names) > 4  # two files of the model, its index, the optimizer's two, the report
    assert filecmp.cmpfiles(few, many, names, shallow=False) == (names, [], [])


def save_nested(path: Path) -> None:
    save(path)
    saved = torch.load(path, weights_only=True)
    rng = {"python": (3, torch.arange(4), None), "cpu": torch.arange(9, dtype=torch.uint8)}
    torch.save({**saved, "rng": rng, "none": {}, "groups": [torch.ones(2), {"decay": 0.9}]}, path)


def test_a_torch_file_is_the_same_and_is_not_opened_as_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_nested(tmp_path / "full.pt")
    few = run(tmp_path, "few.pt", to=OutputFormat.TORCH)
    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3)
    with open_source([tmp_path / "full.pt"]) as contents:
        options = ConvertOptions(WriteOptions(to=OutputFormat.TORCH))
        done = convert(contents, tmp_path / "many.pt", options, reopen=_never)
    assert done is not None and done.verified
    assert filecmp.cmp(few, tmp_path / "many.pt", shallow=False)


def _never(path: Path) -> NoReturn:
    raise AssertionError(f"{path} was opened as a checkpoint")


@pytest.mark.parametrize(
    "part", [b"exp_avg", b"PK\x01\x02", b"PK\x05\x06", struct.pack("<f", 0.25), b"archive/data/3", b"inline"]
)
def test_damage_of_a_torch_file_is_found(
    part: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_nested(tmp_path / "full.pt")
    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3)
    finish = TorchFileLayout.finish

    def finish_and_damage(self: TorchFileLayout, out: Output) -> None:
        finish(self, out)
        out.settle()
        path = out.directory / self.files[0].name
        inline = self.storage(len(self.tensors)).data_offset
        flip(path, inline if part == b"inline" else path.read_bytes().index(part))

    monkeypatch.setattr(TorchFileLayout, "finish", finish_and_damage)
    with pytest.raises(UnreadableError):
        run(tmp_path, "out.pt", to=OutputFormat.TORCH)
    assert [path.name for path in tmp_path.iterdir()] == ["full.pt"]


HEADER = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    ("name", "at"),
    [
        (HEADER, 40),
        (HEADER, -1),
        ("optimizer/optimizer.safetensors", -1),
        ("optimizer/param_groups.json", -30),
        ("model.safetensors.index.json", 20),
    ],
)
def test_damage_of_safetensors_is_found(
    name: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "full.pt")
    monkeypatch.setattr(laid_out, "MANY_CHUNKS", 3)
    finish = SafetensorsLayout.finish

    def finish_and_damage(self: SafetensorsLayout, out: Output) -> None:
        finish(self, out)
        out.settle()
        flip(out.directory / name, at)

    monkeypatch.setattr(SafetensorsLayout, "finish", finish_and_damage)
    with pytest.raises(UnreadableError, match="failed its check after writing"):
        run(tmp_path, "out", to=OutputFormat.SAFETENSORS)
    assert [path.name for path in tmp_path.iterdir()] == ["full.pt"]
