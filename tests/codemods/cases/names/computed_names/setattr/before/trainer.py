from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, nets):
        for name, net in nets.items():
            setattr(self, f"model_{name}", FSDP(net))
        model = FSDP(nets["judge"])
        setattr(self, "judge" + "_model", model)
        setattr(self, "plain_{}".format("net"), nets["plain"])

    def saved(self, name):
        return getattr(self, f"model_{name}").state_dict()


def in_parts(net):
    for name, child in net.named_children():
        setattr(net, name, FSDP(child))
    return FSDP(net)
