from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Adversaries:
    def __init__(self):
        self.models = {"generator": nn.Linear(4, 4), "discriminator": nn.Linear(4, 1)}
        self.plain = {"generator": nn.Linear(4, 4)}
        for name in ("generator", "discriminator"):
            self.models[name] = self._wrap(self.models[name])
        self.generator = self.models["generator"]

    def _wrap(self, model):
        return fully_shard(model)

    def clip(self, name):
        first = nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0).full_tensor()
        nn.utils.clip_grad_norm_(self.models[name].parameters(), 1.0)
        for model in self.models.values():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return first

    def weights(self):
        sharded = get_model_state_dict(
            self.models["generator"], options=StateDictOptions(full_state_dict=True)
        )
        plain = self.plain["generator"].state_dict()
        return sharded, plain

    def decay(self, name):
        return [p for p in self.plain[name].parameters() if p.ndim > 1]
