from torch.distributed.fsdp import FullyShardedDataParallel


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and what it added
#   methods of the model
class Own(FullyShardedDataParallel):
    pass


def test(net):
    model = Own(net)
    # TODO(fsdp-migrate FM516): if this is a sharded model, rewrite this by hand: an
    #   FSDP2 model does not have it
    with model.summon_full_params(model):
        return model.weight.cpu()
