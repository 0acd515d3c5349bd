import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

from model import Model, batch, loss_of


def make_groups(per_node):
    """The group of this rank's node, and that of the same place in every node."""
    within, _ = dist.new_subgroups(per_node)
    nodes = dist.get_world_size() // per_node
    places = [[node * per_node + p for node in range(nodes)] for p in range(per_node)]
    between, _ = dist.new_subgroups_by_enumeration(places)
    return within, between


def main(out, hybrid):
    torch.manual_seed(3)
    process_group = None
    strategy = ShardingStrategy.FULL_SHARD
    if hybrid:
        process_group = make_groups(2)
        strategy = ShardingStrategy.HYBRID_SHARD
    model = FSDP(
        Model(),
        process_group=process_group,
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
