"""What the requirements beside rewritten code say of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import tool

from codemods.model import Options, Outcome
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from codemods.torch_pins import pins

KEEPS_OUT, LETS_IN, UNREAD = "keeps out torch 2.6", "lets in torch below 2.6", "is not read"
PINS = {
    "torch==2.0.1": KEEPS_OUT,
    "torch==2.1.0+cu118  # ours": KEEPS_OUT,
    "torch==2.1.*": KEEPS_OUT,
    "torch ~= 2.1.0": KEEPS_OUT,
    "torch<2.6": KEEPS_OUT,
    "torch<2.6.0": KEEPS_OUT,
    "torch==2.*": "",
    "  - pytorch=2": "",
    'torch = "~2.1"': KEEPS_OUT,
    "torch>=2.2.0,<=2.5.1": KEEPS_OUT,
    'torch = "2.1.0"': KEEPS_OUT,
    "  - pytorch=2.2.0=py3.12_cuda12.1": KEEPS_OUT,
    "  - pytorch::pytorch=2.1": KEEPS_OUT,
    "torch>=2.2": LETS_IN,
    "torch~=2.1": LETS_IN,
    "torch[opt-einsum]>=2.1.0 ; python_version >= '3.10'": LETS_IN,
    '        "torch>=2.4.0,<2.6.1",': LETS_IN,
    'torch = "^2.1"': LETS_IN,
    "torch": "",
    "torch>=2.6": "",
    "torch==2.9.1": "",
    "torch<3": "",
    "torch!=2.5": "",
    "# torch==2.0": "",
    "torchvision==0.15": "",
    "pytorch-lightning==2.0": "",
    "torch = 2": "",
    "Torch==2.1": KEEPS_OUT,
    "torch @ https://x.org/whl/cu118/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl#sha256=1f": KEEPS_OUT,
    "https://x.org/linux-64/pytorch-2.2.2-py3.11_cuda12.1_0.tar.bz2": KEEPS_OUT,
    "https://x.org/torch-2.9.1-cp310-linux_x86_64.whl": "",
    'torch = {version = "^2.1", source = "cu118"}': LETS_IN,
    'torch = [{ index = "cu121" }]': "",
    'torch = "*"': "",
    "pytorch                   2.2.2           py3.11_cuda12.1_cudnn8.9.2_0    pytorch": KEEPS_OUT,
    "ffmpeg                    4.3                  hf484d3e_0    pytorch": "",
    "  - pytorch 2.1.*": KEEPS_OUT,
    "a network of pytorch 2.1 modules": "",
    '    requires.append(f"torch=={torch_version}")': UNREAD,
    '    requires.append("torch>=" + LOWEST)': UNREAD,
    "torch==${TORCH_VERSION}": UNREAD,
    "torch @ git+https://github.com/pytorch/pytorch": UNREAD,
    'torch = { git = "https://github.com/pytorch/pytorch" }': UNREAD,
    "torch @ file:///wheels/torch.whl": UNREAD,
}


@pytest.mark.parametrize("line", PINS)
def test_pin(line: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")
    said = [(f.place.line, f.message) for f in pins(tmp_path, ["train.py"], (2, 6))]
    assert [line for line, _ in said] == ([2] if PINS[line] else [])
    assert all(PINS[line] in message for _, message in said)


def test_only_beside_what_is_rewritten(tmp_path: Path) -> None:
    for folder in ("train", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "requirements.txt").write_text("torch==2.1\ntorch<2.5\n")
    (tmp_path / "setup.py").write_text('install_requires = ["torch>=2.0"]\n')
    (tmp_path / "train" / "wrap.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def wrap(model):\n    return FSDP(model)\n"
    )
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    said = [r for r in done.reported if r.finding.code == "FM124"]
    assert [(r.finding.place.path, r.finding.place.line) for r in said] == [
        ("setup.py", 1),
        ("train/requirements.txt", 1),
    ]
    assert {r.outcome for r in said} == {Outcome.NOTE}
    assert done.open_findings == ()
    tool.rewrite_in_place(tmp_path)
    assert "FM124" not in tool.rewrite_in_place(tmp_path).codes  # nothing is left to rewrite


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings_of_other_systems(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("torch==2.1\r\nnumpy\r\n".encode(encoding))
    assert [(f.place.line, f.message[:12]) for f in pins(tmp_path, ["train.py"], (2, 6))] == [
        (1, "`torch==2.1`")
    ]


def test_what_is_too_old_is_said_before_what_is_unread(tmp_path: Path) -> None:
    (tmp_path / "dev-requirements.in").write_text("torch==${TORCH}\ntorch<2.3\n")
    (tmp_path / "requirements.txt").mkdir()
    said = [(f.place.path, f.place.line, f.is_note, f.message) for f in pins(tmp_path, ["train.py"], (2, 6))]
    assert said == [
        (
            *("dev-requirements.in", 2, True),
            "`torch<2.3` keeps out torch 2.6, which the rewritten code needs",
        ),
        ("requirements.txt", 1, True, "the file cannot be read (Is a directory)"),
    ]


def test_older_target(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.4.1\n")
    assert list(pins(tmp_path, ["train.py"], (2, 4))) == []
    assert len(list(pins(tmp_path, ["train.py"], (2, 5)))) == 1
