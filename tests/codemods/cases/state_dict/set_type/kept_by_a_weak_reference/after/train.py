import weakref

from loading import load_local
from wrap import to_fsdp


class Facade:
    def __init__(self, module):
        self._module = weakref.ref(module)

    def load(self, state):
        module = self._module()
        load_local(module, state)


def main(model, state):
    model = to_fsdp(model)
    Facade(model).load(state)
