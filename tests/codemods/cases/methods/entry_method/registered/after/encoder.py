from model import Model


class Encoder(Model):
    def encode(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return x

    def read_out(self, x):
        return self.head(x)

    def generate(self, tokens):
        """Only calls the model."""
        return self(tokens).argmax(-1)

    def name(self):
        return "encoder"


class Features:
    def __init__(self, model):
        self.model = model

    def of(self, tokens):
        return self.model.read_out(self.model.encode(tokens))
