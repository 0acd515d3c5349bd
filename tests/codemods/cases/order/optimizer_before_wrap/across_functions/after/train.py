import engine
from model import Model


def prepare(model, optimizer):
    model = engine.wrap(model)
    return model, optimizer


def main(out):
    model = Model()
    optimizer = engine.optimizer_for(model)
    model, optimizer = prepare(model, optimizer)
    trainer = engine.Trainer(Model())
    trainer.setup()
    after = engine.wrap(Model())
    return model, optimizer, engine.late_optimizer_for(after)
