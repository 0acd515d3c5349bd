from torch import nn


class Kept(nn.Module):
    """A wrapper of this project's, whose names look like FSDP1's."""

    def __init__(self, module):
        super().__init__()
        self._fsdp_wrapped_module = module
