from unittest import mock
from unittest.mock import patch

import mylib.wrap


# TODO(fsdp-migrate FM642): name a function of your own that calls `fully_shard` on the
#   units and the model and gives the model back, with settings of `fully_shard`
@patch("torch.distributed.fsdp.FullyShardedDataParallel")
def test_one(fsdp):
    mylib.wrap.build()


# TODO(fsdp-migrate FM642): patch what stands there now: `fully_shard`, or the helper
#   module's `shard_model`
@patch("mylib.wrap.FSDP")
def test_two(fsdp):
    mylib.wrap.build()


# TODO(fsdp-migrate FM642): patch what stands there now: `fully_shard`, or the helper
#   module's `shard_model`
@mock.patch("mylib.wrap.FullyShardedDataParallel.state_dict")
def test_three(fsdp):
    # TODO(fsdp-migrate FM642): patch what stands there now: `fully_shard`, or the
    #   helper module's `shard_model`
    with patch.object(mylib.wrap, "FSDP"):
        mylib.wrap.build()


def test_four(monkeypatch, mocker):
    # TODO(fsdp-migrate FM642): patch what stands there now: `fully_shard`, or the
    #   helper module's `shard_model`
    monkeypatch.setattr("mylib.wrap.FSDP", None)
    # TODO(fsdp-migrate FM642): patch what stands there now: `fully_shard`, or the
    #   helper module's `shard_model`
    monkeypatch.setattr(mylib.wrap, "FSDP", None)
    # TODO(fsdp-migrate FM642): name what stands in its place after the rewrite: see
    #   `explain summon_full_params`
    mocker.patch("torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel.summon_full_params")
    mocker.patch("mylib.wrap.transformer_auto_wrap_policy")
