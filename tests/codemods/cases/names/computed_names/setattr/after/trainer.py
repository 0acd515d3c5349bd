from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import shard_model


class Trainer:
    def __init__(self, nets):
        for name, net in nets.items():
            # TODO(fsdp-migrate FM541): look for its `state_dict`, `load_state_dict`,
            #   `no_sync`, `clip_grad_norm_`, and translate them as those of other
            #   models
            setattr(self, f"model_{name}", shard_model(net))
        model = fully_shard(nets["judge"])
        # TODO(fsdp-migrate FM541): look for its `state_dict`, `load_state_dict`,
        #   `no_sync`, `clip_grad_norm_`, and translate them as those of other models
        setattr(self, "judge" + "_model", model)
        setattr(self, "plain_{}".format("net"), nets["plain"])

    def saved(self, name):
        return getattr(self, f"model_{name}").state_dict()


def in_parts(net):
    for name, child in net.named_children():
        setattr(net, name, shard_model(child))
    return fully_shard(net)
