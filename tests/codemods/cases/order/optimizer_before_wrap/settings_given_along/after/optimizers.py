import torch


def build_optimizer(model, config):
    decayed = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(decayed, lr=config.lr)
