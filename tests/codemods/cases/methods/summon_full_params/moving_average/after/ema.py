import torch

from fsdp2_sharding import summon_full_params


class EMA_FSDP:
    def __init__(self, fsdp_module, decay=0.9):
        self.decay = decay
        self.shadow = {}
        self._init_shadow(fsdp_module)

    @torch.no_grad()
    def _init_shadow(self, fsdp_module):
        with summon_full_params(fsdp_module, writeback=False):
            for n, p in fsdp_module.named_parameters():
                self.shadow[n] = p.detach().clone().float().cpu()

    @torch.no_grad()
    def update(self, fsdp_module):
        d = self.decay
        with summon_full_params(fsdp_module, writeback=False):
            for n, p in fsdp_module.named_parameters():
                self.shadow[n].mul_(d).add_(p.detach().float().cpu(), alpha=1.0 - d)

    # Optional helpers ---------------------------------------------------
    def state_dict(self):
        return self.shadow  # picklable

    def copy_to(self, fsdp_module):
        # load EMA weights into an (unwrapped) copy of the generator
        with summon_full_params(fsdp_module, writeback=True):
            for n, p in fsdp_module.named_parameters():
                if n in self.shadow:
                    p.data.copy_(self.shadow[n].to(p.dtype))
