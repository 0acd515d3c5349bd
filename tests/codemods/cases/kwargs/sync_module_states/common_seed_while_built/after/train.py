import torch
import torch.distributed as dist

from fsdp2_sharding import ShardingStrategy, shard_model
from model import Model
from seeds import seed_everything, set_seed

CPU = torch.device("cpu")


def common(rank):
    set_seed(7)
    model = Model()
    set_seed(7, rank)  # the order of the data differs
    return shard_model(
        model, device_id=CPU, sharding_strategy=ShardingStrategy.NO_SHARD
    )


def common_again(rank):
    set_seed(7, rank)
    torch.manual_seed(7)
    return shard_model(
        Model(), device_id=CPU, sharding_strategy=ShardingStrategy.NO_SHARD
    )


def of_this_rank(rank):
    set_seed(7, rank=rank)
    return shard_model(
        Model(), device_id=CPU, sharding_strategy=ShardingStrategy.NO_SHARD
    )


def asked_within():
    seed_everything(7)
    return shard_model(
        Model(), device_id=CPU, sharding_strategy=ShardingStrategy.NO_SHARD
    )


def read_from_a_file(rank, path):
    set_seed(7, rank)
    model = Model()
    model.load_state_dict(torch.load(path))
    return shard_model(
        model, device_id=CPU, sharding_strategy=ShardingStrategy.NO_SHARD
    )


def main(out):
    rank = dist.get_rank()
    return {
        "common": common(rank),
        "common_again": common_again(rank),
        "of_this_rank": of_this_rank(rank),
        "asked_within": asked_within(),
    }
