import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from model import Model


class Pair:
    def __init__(self):
        self.generator = Model()
        fully_shard(
            self.generator, mesh=init_device_mesh("cpu", (dist.get_world_size(),))
        )
        self.critic = Model()
        fully_shard(self.critic, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


class Trainer:
    def __init__(self, max_norm):
        self.policy = Model()
        fully_shard(self.policy, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.model = Pair()
        self.nets = {
            "generator": self.model.generator,
            "critic": self.model.critic,
        }
        self.max_norm = max_norm
        self.lines = []

    def clip_gradient(self):
        """Clip the gradients of an FSDP policy, as seen on all ranks."""
        return torch.nn.utils.clip_grad_norm_(
            self.policy.parameters(), self.max_norm
        ).full_tensor().item()

    def of_a_part(self):
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.generator.parameters(), self.max_norm
        ).full_tensor()
        return {"generator": norm.item()}

    def positional(self):
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.critic.parameters(), self.max_norm, norm_type=2.0
        ).full_tensor()
        self.lines.append(f"norm {norm:.3f}")
        self.lines.append("norm %.3f" % norm)
        return float(norm)

    def with_a_keyword(self):
        return torch.nn.utils.clip_grad_norm_(
            self.policy.parameters(), self.max_norm, norm_type=1.0
        ).full_tensor()

    def each_net(self):
        total = torch.zeros(())
        for name, net in self.nets.items():
            total += torch.nn.utils.clip_grad_norm_(
                net.parameters(), self.max_norm
            ).full_tensor()
        return total

    def either(self, model):
        if isinstance(model, FSDPModule):
            norm = torch.nn.utils.clip_grad_norm_(
                model.parameters(), self.max_norm
            ).full_tensor()
        else:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
        return norm

    def if_it_can(self, model):
        if isinstance(model, FSDPModule):
            return torch.nn.utils.clip_grad_norm_(
                model.parameters(), self.max_norm
            ).full_tensor()
        return torch.nn.utils.clip_grad_norm_(model.parameters(), self.max_norm)
