import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)


class Checkpointer:
    def __init__(self, model, folder):
        self.model = model
        self.path = folder / "model.pt"

    def save(self):
        state = {
            "model": get_model_state_dict(
                self.model, options=StateDictOptions(full_state_dict=True)
            ),
            "step": 1,
        }
        if dist.get_rank() == 0:
            torch.save(state, self.path)

    def load(self):
        state = torch.load(self.path)
        set_model_state_dict(
            self.model,
            state["model"],
            options=StateDictOptions(full_state_dict=True, strict=False),
        )
