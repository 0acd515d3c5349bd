import contextlib
from functools import partial

from fsdp2_sharding import no_sync_of_either
from wrap import wrapped


def train(model, kind, batches):
    model = wrapped(model, kind)
    for i, batch in enumerate(batches):
        context = partial(no_sync_of_either, model) if i % 2 else contextlib.nullcontext
        with context():
            model(batch).mean().backward()
        with no_sync_of_either(model) if i % 3 else contextlib.nullcontext():
            model(batch).mean().backward()
