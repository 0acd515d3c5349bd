from torch.amp import GradScaler


def scaler(group):
    return GradScaler("cuda", init_scale=1024.0, backoff_factor=0.5, growth_factor=2.0)


def old_scaler():
    return GradScaler(init_scale=2.0**10, backoff_factor=0.5)


def passed_on(make=GradScaler):
    return make(enabled=True)
