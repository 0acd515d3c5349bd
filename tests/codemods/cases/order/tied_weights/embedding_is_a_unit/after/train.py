from torch import nn
from torch.distributed.fsdp import fully_shard


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 32, bias=False)
        # TODO(fsdp-migrate FM506): keep both out of the policy, or shard them together:
        #   `fully_shard([first, second])`
        self.head.weight = self.embed.weight


def build():
    model = Model()
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, nn.Embedding):
            fully_shard(module)
    return fully_shard(model)
