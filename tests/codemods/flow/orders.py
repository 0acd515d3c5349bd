"""Optimizers that are built before the model is wrapped: `# <-` marks where that has to be found."""

from __future__ import annotations

ORDERS = {
    "one name": """
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())  # <-
        model = WRAP(model)
    """,
    "two names": """
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # <-
        sharded = WRAP(model)
    """,
    "attribute": """
        class Trainer:
            def __init__(self):
                self.model = Net()
                self.optimizer = torch.optim.AdamW(self.model.parameters())  # <-
                self.model = WRAP(self.model)
    """,
    "list of parameters": """
        model = Net()
        params = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(params)  # <-
        model = WRAP(model)
    """,
    "groups": """
        model = Net()
        groups = [{"params": model.parameters(), "lr": 0.1}]
        optimizer = torch.optim.AdamW(groups)  # <-
        model = WRAP(model)
    """,
    "function that wraps": """
        def shard(net):
            return WRAP(net)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())  # <-
        model = shard(model)
    """,
    "function that builds": """
        def build_optimizer(net):
            return torch.optim.AdamW(net.parameters())
        model = Net()
        optimizer = build_optimizer(model)  # <-
        model = WRAP(model)
    """,
    "in a branch": """
        def main(args):
            model = Net()
            optimizer = torch.optim.AdamW(model.parameters())  # <-
            if args.fsdp:
                model = WRAP(model)
            return model, optimizer
    """,
    "moved in between": """
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())  # <-
        model = WRAP(model.cuda())
    """,
    "the project's own, of a list": """
        class Own(torch.optim.Optimizer):
            pass
        model = Net()
        params = list(model.parameters())
        optimizer = Own(params)  # <-
        model = WRAP(model)
    """,
    "the project's own, of groups": """
        class Base(torch.optim.Optimizer):
            pass
        class Own(Base):
            pass
        model = Net()
        groups = [{"params": [p for p in model.parameters()], "lr": 0.1}]
        optimizer = Own(groups)  # <-
        model = WRAP(model)
    """,
}
