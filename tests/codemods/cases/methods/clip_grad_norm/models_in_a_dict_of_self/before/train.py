from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Adversaries:
    def __init__(self):
        self.models = {"generator": nn.Linear(4, 4), "discriminator": nn.Linear(4, 1)}
        self.plain = {"generator": nn.Linear(4, 4)}
        for name in ("generator", "discriminator"):
            self.models[name] = self._wrap(self.models[name])
        self.generator = self.models["generator"]

    def _wrap(self, model):
        return FSDP(model, use_orig_params=True)

    def clip(self, name):
        first = self.generator.clip_grad_norm_(1.0)
        self.models[name].clip_grad_norm_(1.0)
        for model in self.models.values():
            model.clip_grad_norm_(1.0)
        return first

    def weights(self):
        sharded = self.models["generator"].state_dict()
        plain = self.plain["generator"].state_dict()
        return sharded, plain

    def decay(self, name):
        return [p for p in self.plain[name].parameters() if p.ndim > 1]
