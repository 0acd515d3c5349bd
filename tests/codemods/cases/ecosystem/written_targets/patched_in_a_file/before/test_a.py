from unittest import mock
from unittest.mock import patch

import mylib.wrap


@patch("torch.distributed.fsdp.FullyShardedDataParallel")
def test_one(fsdp):
    mylib.wrap.build()


@patch("mylib.wrap.FSDP")
def test_two(fsdp):
    mylib.wrap.build()


@mock.patch("mylib.wrap.FullyShardedDataParallel.state_dict")
def test_three(fsdp):
    with patch.object(mylib.wrap, "FSDP"):
        mylib.wrap.build()


def test_four(monkeypatch, mocker):
    monkeypatch.setattr("mylib.wrap.FSDP", None)
    monkeypatch.setattr(mylib.wrap, "FSDP", None)
    mocker.patch("torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel.summon_full_params")
    mocker.patch("mylib.wrap.transformer_auto_wrap_policy")
