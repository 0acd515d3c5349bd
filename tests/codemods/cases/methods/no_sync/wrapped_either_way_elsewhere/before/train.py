import contextlib

from wrap import wrapped


def train(model, kind, batches):
    model = wrapped(model, kind)
    for i, batch in enumerate(batches):
        context = model.no_sync if i % 2 else contextlib.nullcontext
        with context():
            model(batch).mean().backward()
        with model.no_sync() if i % 3 else contextlib.nullcontext():
            model(batch).mean().backward()
