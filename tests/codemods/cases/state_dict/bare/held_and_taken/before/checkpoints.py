import torch
import torch.distributed as dist


class Checkpointer:
    def __init__(self, model, folder):
        self.model = model
        self.path = folder / "model.pt"

    def save(self):
        state = {"model": self.model.state_dict(), "step": 1}
        if dist.get_rank() == 0:
            torch.save(state, self.path)

    def load(self):
        state = torch.load(self.path)
        self.model.load_state_dict(state["model"], strict=False)
