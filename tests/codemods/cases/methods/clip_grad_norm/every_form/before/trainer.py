import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model


class Pair:
    def __init__(self):
        self.generator = FSDP(Model(), device_id=torch.device("cpu"))
        self.critic = FSDP(
            Model(), device_id=torch.device("cpu"), use_orig_params=True
        )


class Trainer:
    def __init__(self, max_norm):
        self.policy = FSDP(Model(), device_id=torch.device("cpu"))
        self.model = Pair()
        self.nets = {
            "generator": self.model.generator,
            "critic": self.model.critic,
        }
        self.max_norm = max_norm
        self.lines = []

    def clip_gradient(self):
        """Clip the gradients of an FSDP policy, as seen on all ranks."""
        return self.policy.clip_grad_norm_(self.max_norm).item()

    def of_a_part(self):
        norm = self.model.generator.clip_grad_norm_(max_norm=self.max_norm)
        return {"generator": norm.item()}

    def positional(self):
        norm = self.model.critic.clip_grad_norm_(self.max_norm, 2.0)
        self.lines.append(f"norm {norm:.3f}")
        self.lines.append("norm %.3f" % norm)
        return float(norm)

    def with_a_keyword(self):
        return self.policy.clip_grad_norm_(self.max_norm, norm_type=1.0)

    def each_net(self):
        total = torch.zeros(())
        for name, net in self.nets.items():
            total += net.clip_grad_norm_(self.max_norm)
        return total

    def either(self, model):
        if isinstance(model, FSDP):
            norm = model.clip_grad_norm_(self.max_norm)
        else:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
        return norm

    def if_it_can(self, model):
        if hasattr(model, "clip_grad_norm_"):
            return model.clip_grad_norm_(self.max_norm)
        return torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
