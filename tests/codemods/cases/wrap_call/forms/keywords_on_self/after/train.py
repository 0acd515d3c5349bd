import torch

from fsdp2_sharding import ModuleWrapPolicy
from model import Block, Model, batch, loss_of
from strategy import Strategy, wrap_some, wrap_two


def main(out):
    torch.manual_seed(3)
    strategy = Strategy(
        bf16=True,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        limit_all_gathers=True,
    )
    models = [
        strategy.setup(Model()),
        wrap_some(
            Model(), auto_wrap_policy=None, comment="no units", use_orig_params=True
        ),
        *wrap_two(Model(), Model()),
    ]
    losses = []
    for step in range(2):
        for model in models:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loss = loss_of(model, batch(step))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step == 0:
                break
    return {"losses": losses, "first": models[0], "second": models[1]}
