from torch.amp import GradScaler


def scaler():
    return GradScaler()
