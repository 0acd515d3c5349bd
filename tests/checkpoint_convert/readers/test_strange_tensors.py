"""A model or an optimizer that would lack a tensor is refused, and says why; other tensors are listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.readers.open import ReadOptions, open_source
from fsdp_migrate.cli.app import app

PLAIN = {"v": torch.ones(2, 2)}
COMPLEX = torch.ones(2, 2, dtype=torch.complex64)


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


def unknown_dtype() -> torch.Tensor:
    return torch.zeros(4, dtype=torch.uint8).view(torch.bits8)


STRANGE = {
    "sparse": (lambda: torch.eye(3).to_sparse(), "is a sparse tensor", "to_dense"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "is a sparse tensor", "to_dense"),
    "quantized": (quantized, "is a quantized tensor", "dequantize"),
    "meta": (lambda: torch.empty(2, device="meta"), "without elements", "once it has its weights"),
    "conjugated": (lambda: COMPLEX.conj(), "lazily conjugated", "resolve_conj"),
    "negated": (lambda: COMPLEX.conj().imag, "lazily conjugated or negated", "resolve_neg"),
    "dtype": (unknown_dtype, "of an unknown dtype", "a dtype of its own"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STRANGE)
def test_in_a_model_or_an_optimizer_it_is_refused(name: str, tmp_path: Path) -> None:
    make, said, remedy = STRANGE[name]
    strange = make()
    torch.save({"model": {"w": strange, **PLAIN}}, tmp_path / "model.pt")
    state = {"v": {"step": torch.tensor(1.0), "exp_avg": strange}}
    groups = [{"lr": 0.1, "params": ["v"]}]
    saved = {"model": PLAIN, "optim": {"state": state, "param_groups": groups}}
    torch.save(saved, tmp_path / "optim.pt")
    torch.save({"model": PLAIN, "mask": strange}, tmp_path / "beside.pt")
    for path, where in (("model.pt", "model.pt: w"), ("optim.pt", "optim.pt: exp_avg of v")):
        with pytest.raises(UnsupportedError, match=said) as caught, open_source([tmp_path / path]):
            raise AssertionError
        assert where in caught.value.message and remedy in caught.value.hint
    with open_source([tmp_path / "optim.pt"], ReadOptions(use_optimizer=False)) as contents:
        assert list(contents.model) == ["v"]
    with open_source([tmp_path / "beside.pt"]) as contents:
        assert list(contents.model) == ["v"] and "mask" in contents.extras
    listed = CliRunner().invoke(app, ["inspect-ckpt", str(tmp_path / "model.pt")])
    assert listed.exit_code == 0 and "torch._utils._rebuild" in listed.output


def test_other_objects_among_the_weights_are_left_behind(tmp_path: Path) -> None:
    torch.save({"model": {**PLAIN, "_extra_state": Path("x")}}, tmp_path / "model.pt")
    with open_source([tmp_path / "model.pt"]) as contents:
        assert list(contents.model) == ["v"] and list(contents.extras) == ["model._extra_state"]


class WithNothing(torch.nn.Module):
    """A parameter without elements among others."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2, 3))
        self.nothing = torch.nn.Parameter(torch.empty(0, 4))
        self.b = torch.nn.Parameter(torch.ones(4))


def test_a_parameter_without_elements_has_its_shape(tmp_path: Path) -> None:
    """With use_orig_params=True its pieces are storages of their own, as ignored parameters are."""
    flat = torch.arange(10.0)
    for rank, (cut, shard) in enumerate(zip((5, 1), flat.chunk(2), strict=True)):
        shard = shard.clone()
        pieces = {"a": shard[:cut], "nothing": torch.empty(0), "b": shard[cut:]}
        torch.save({"_flat_param": shard, **pieces}, tmp_path / f"rank{rank}.pt")
    with open_source([tmp_path], ReadOptions(model=f"{__name__}:WithNothing")) as contents:
        assert {name: source.shape for name, source in contents.model.items()} == {
            "a": (2, 3),
            "nothing": (0, 4),
            "b": (4,),
        }
        assert b"".join(contents.model["a"].blocks(0, 6)) == flat[:6].numpy().tobytes()
