"""Ways for a model to get from where it is made to where it is used: tiny programs with a hole at each end.

A program is a dictionary from file name to text. `MADE` is the expression that makes the model; it stands
once. A line `>>> expr` is where the model has arrived: it is replaced by code that uses `expr`.
"""

from __future__ import annotations

ONE_FILE = {
    "assignment": """
        model = MADE
        >>> model
    """,
    "chain of names": """
        first = MADE
        second = first
        third = second
        >>> third
    """,
    "several targets": """
        model = net = MADE
        >>> model
    """,
    "annotated assignment": """
        model: nn.Module = MADE
        >>> model
    """,
    "walrus": """
        if (model := MADE) is not None:
            >>> model
    """,
    "walrus in a call": """
        register(model := MADE)
        >>> model
    """,
    "tuple": """
        steps, model = 10, MADE
        >>> model
    """,
    "nested tuple": """
        (steps, (name, model)) = 10, ("policy", MADE)
        >>> model
    """,
    "starred tuple": """
        model, *rest = MADE, 1, 2
        >>> model
    """,
    "tuple behind a starred one": """
        *rest, model = 1, 2, MADE
        >>> model
    """,
    "conditional expression": """
        model = MADE if args.fsdp else Net()
        >>> model
    """,
    "or": """
        model = cached or MADE
        >>> model
    """,
    "branch": """
        model = Net()
        if args.fsdp:
            model = MADE
        >>> model
    """,
    "nested branch": """
        model = Net()
        if args.distributed:
            if args.fsdp:
                model = MADE
            else:
                model = model.cuda()
        >>> model
    """,
    "match": """
        model = Net()
        match args.strategy:
            case "fsdp":
                model = MADE
            case _:
                pass
        >>> model
    """,
    "try": """
        try:
            model = MADE
        except RuntimeError:
            raise
        >>> model
    """,
    "pass-through methods": """
        model = MADE.to("cuda").train().requires_grad_(True)
        >>> model
    """,
    "pass-through statements": """
        model = MADE
        model = model.cuda()
        model.train()
        >>> model
    """,
    "compile": """
        model = torch.compile(MADE)
        >>> model
    """,
    "compile by name": """
        model = MADE
        model = torch.compile(model, mode="max-autotune")
        >>> model
    """,
    "accelerator": """
        model = accelerator.prepare(MADE)
        >>> model
    """,
    "accelerator with an optimizer": """
        model = MADE
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        >>> model
    """,
    "cast": """
        model = typing.cast(nn.Module, MADE)
        >>> model
    """,
    "closure": """
        def run():
            model = MADE
            def inner():
                >>> model
            inner()
        run()
    """,
    "global": """
        model = None
        def setup():
            global model
            model = MADE
        def run():
            >>> model
        setup()
        run()
    """,
    "nonlocal": """
        def run():
            model = None
            def setup():
                nonlocal model
                model = MADE
            setup()
            def use():
                >>> model
            use()
        run()
    """,
    "parameter": """
        def run(net):
            >>> net
        run(MADE)
    """,
    "keyword parameter": """
        def run(steps, *, net=None):
            >>> net
        run(3, net=MADE)
    """,
    "parameter through three functions": """
        def one(a):
            two(a)
        def two(b):
            three(model=b)
        def three(model):
            >>> model
        one(MADE)
    """,
    "async function": """
        async def run(net):
            >>> net
        asyncio.run(run(MADE))
    """,
    "variable arguments": """
        def run(*args):
            net = args[0]
            >>> net
        run(MADE, 3)
    """,
    "variable arguments, unpacked": """
        def run(*args):
            net, steps = args
            >>> net
        run(MADE, 3)
    """,
    "variable arguments, looped over": """
        def run(*nets):
            for net in nets:
                >>> net
        run(MADE, MADE_AGAIN)
    """,
    "variable arguments handed on": """
        def run(*args):
            inner(*args)
        def inner(net, steps):
            >>> net
        run(MADE, 3)
    """,
    "keyword arguments": """
        def run(**kwargs):
            net = kwargs["model"]
            >>> net
        run(model=MADE, steps=3)
    """,
    "keyword arguments, get": """
        def run(**kwargs):
            net = kwargs.get("model")
            >>> net
        run(model=MADE, steps=3)
    """,
    "keyword arguments handed on": """
        def run(**kwargs):
            inner(**kwargs)
        def inner(model, steps):
            >>> model
        run(model=MADE, steps=3)
    """,
    "arguments from a list": """
        def run(net, steps):
            >>> net
        given = [MADE, 3]
        run(*given)
    """,
    "arguments from a dict": """
        def run(net, steps):
            >>> net
        given = {"net": MADE, "steps": 3}
        run(**given)
    """,
    "partial": """
        def run(net, steps):
            >>> net
        go = functools.partial(run, MADE)
        go(3)
    """,
    "partial with a keyword": """
        def run(steps, net):
            >>> net
        go = functools.partial(run, net=MADE)
        go(3)
    """,
    "partial imported": """
        from functools import partial
        def run(net, steps):
            >>> net
        partial(run, MADE)(3)
    """,
    "thread": """
        def run(net):
            >>> net
        threading.Thread(target=run, args=(MADE,)).start()
    """,
    "lambda": """
        run = lambda net: net
        model = run(MADE)
        >>> model
    """,
    "function in a variable": """
        def run(net):
            >>> net
        go = run
        go(MADE)
    """,
    "decorated": """
        @torch.no_grad()
        def run(net):
            >>> net
        run(MADE)
    """,
    "returned": """
        def build():
            return MADE
        model = build()
        >>> model
    """,
    "returned through names": """
        def build():
            net = Net()
            net = MADE
            return net
        model = build()
        >>> model
    """,
    "given and returned": """
        def prepared(net):
            net.train()
            return net
        model = prepared(MADE)
        >>> model
    """,
    "returned on one of two ways": """
        def build(args):
            if not args.fsdp:
                return Net()
            return MADE
        model = build(args)
        >>> model
    """,
    "returned tuple": """
        def build():
            return MADE, None, 3
        model, optimizer, steps = build()
        >>> model
    """,
    "returned tuple, whole": """
        def build():
            return 3, MADE
        made = build()
        model = made[1]
        >>> model
    """,
    "returned dict": """
        def build():
            return {"model": MADE, "steps": 3}
        made = build()
        model = made["model"]
        >>> model
    """,
    "item of a call": """
        def build():
            return dict(model=MADE, steps=3)
        model = build()["model"]
        >>> model
    """,
    "returned list": """
        def build():
            return [MADE]
        (model,) = build()
        >>> model
    """,
    "generator": """
        def build():
            yield MADE
        for model in build():
            >>> model
    """,
    "generator, next": """
        def build():
            yield MADE
        model = next(build())
        >>> model
    """,
    "context manager": """
        @contextlib.contextmanager
        def building():
            yield MADE
        with building() as model:
            >>> model
    """,
    "context manager class": """
        class Building:
            def __enter__(self):
                return MADE
            def __exit__(self, *exc):
                return None
        with Building() as model:
            >>> model
    """,
    "async generator": """
        async def build():
            yield MADE
        async def run():
            async for model in build():
                >>> model
        asyncio.run(run())
    """,
    "awaited": """
        async def build():
            return MADE
        async def run():
            model = await build()
            >>> model
        asyncio.run(run())
    """,
    "list": """
        models = [MADE, MADE_AGAIN]
        >>> models[0]
    """,
    "list, loop": """
        models = [MADE, MADE_AGAIN]
        for model in models:
            >>> model
    """,
    "list, append": """
        models = []
        models.append(MADE)
        for model in models:
            >>> model
    """,
    "list, insert and extend": """
        models = []
        models.extend([MADE])
        model = models[0]
        >>> model
    """,
    "list, augmented": """
        models = []
        models += [MADE]
        for model in models:
            >>> model
    """,
    "list, sum": """
        models = [] + [MADE]
        model = models[-1]
        >>> model
    """,
    "list, pop": """
        models = [MADE]
        model = models.pop()
        >>> model
    """,
    "list, slice": """
        models = [MADE, MADE_AGAIN]
        for model in models[:1]:
            >>> model
    """,
    "list, sorted and reversed": """
        models = [MADE, MADE_AGAIN]
        for model in reversed(list(models)):
            >>> model
    """,
    "enumerate": """
        for i, model in enumerate([MADE, MADE_AGAIN]):
            >>> model
    """,
    "enumerate of a name": """
        models = [MADE]
        for i, model in enumerate(models, start=1):
            >>> model
    """,
    "zip": """
        names, models = ["a"], [MADE]
        for name, model in zip(names, models, strict=True):
            >>> model
    """,
    "zip and enumerate": """
        models = [MADE]
        for i, (name, model) in enumerate(zip(["a"], models)):
            >>> model
    """,
    "list of pairs": """
        pairs = [("actor", MADE), ("critic", MADE_AGAIN)]
        for name, model in pairs:
            >>> model
    """,
    "comprehension": """
        models = [net.train() for net in (MADE,)]
        for model in models:
            >>> model
    """,
    "wrapped in a comprehension": """
        models = [MADE for part in parts]
        for model in models:
            >>> model
    """,
    "within a comprehension": """
        models = [MADE]
        names = [
            >>> model
            for model in models
        ]
    """,
    "dict comprehension": """
        models = {name: MADE for name in names}
        >>> models["actor"]
    """,
    "set": """
        for model in {MADE}:
            >>> model
    """,
    "dict": """
        models = {"actor": MADE, "steps": 3}
        >>> models["actor"]
    """,
    "dict, called": """
        models = dict(actor=MADE, steps=3)
        >>> models["actor"]
    """,
    "dict, stored": """
        models = {}
        models["actor"] = MADE
        >>> models["actor"]
    """,
    "dict, stored under a name": """
        models = {}
        for name in names:
            models[name] = MADE
        for name in names:
            model = models[name]
            >>> model
    """,
    "dict, update": """
        models = {}
        models.update(actor=MADE)
        >>> models["actor"]
    """,
    "dict, update with a dict": """
        models = {}
        models.update({"actor": MADE})
        >>> models["actor"]
    """,
    "dict, setdefault": """
        models = {}
        model = models.setdefault("actor", MADE)
        >>> model
    """,
    "dict, merged": """
        first = {"actor": MADE}
        models = {**first, "steps": 3}
        >>> models["actor"]
    """,
    "dict, or": """
        models = {"steps": 3} | {"actor": MADE}
        >>> models["actor"]
    """,
    "dict, get": """
        models = {"actor": MADE}
        model = models.get("actor")
        >>> model
    """,
    "dict, pop": """
        models = {"actor": MADE}
        model = models.pop("actor")
        >>> model
    """,
    "dict, values": """
        models = {"actor": MADE}
        for model in models.values():
            >>> model
    """,
    "dict, items": """
        models = {"actor": MADE}
        for name, model in models.items():
            >>> model
    """,
    "dict of dicts": """
        state = {"models": {"actor": MADE}}
        >>> state["models"]["actor"]
    """,
    "dict, filled elsewhere": """
        models = {}
        def setup():
            models["actor"] = MADE
        def run():
            >>> models["actor"]
    """,
    "namespace": """
        state = types.SimpleNamespace(model=MADE, steps=3)
        >>> state.model
    """,
    "namespace, stored": """
        state = types.SimpleNamespace()
        state.model = MADE
        >>> state.model
    """,
    "namespace given": """
        def run(state):
            >>> state.model
        run(types.SimpleNamespace(model=MADE))
    """,
    "attribute": """
        class Trainer:
            def __init__(self):
                self.model = MADE
            def run(self):
                >>> self.model
    """,
    "attribute, given": """
        class Trainer:
            def __init__(self, model, steps=3):
                self.model = model
            def run(self):
                >>> self.model
        Trainer(MADE).run()
    """,
    "attribute, by a name": """
        class Trainer:
            def __init__(self, model):
                self.model = model
            def run(self):
                net = self.model
                >>> net
        Trainer(model=MADE).run()
    """,
    "attribute, from a method": """
        class Trainer:
            def build(self):
                return MADE
            def setup(self):
                self.model = self.build()
            def run(self):
                >>> self.model
    """,
    "attribute, from a static method": """
        class Trainer:
            @staticmethod
            def build():
                return MADE
            def setup(self):
                self.model = Trainer.build()
            def run(self):
                >>> self.model
    """,
    "attribute, unpacked": """
        class Trainer:
            def setup(self):
                self.model, self.optimizer = self.build()
            def build(self):
                return MADE, None
            def run(self):
                >>> self.model
    """,
    "attribute, of a class method": """
        class Trainer:
            def __init__(self, model):
                self.model = model
            @classmethod
            def create(cls):
                return cls(MADE)
            def run(self):
                >>> self.model
        Trainer.create().run()
    """,
    "attribute of an instance": """
        class Trainer:
            def __init__(self, model):
                self.model = model
        trainer = Trainer(MADE)
        >>> trainer.model
    """,
    "attribute of an instance, given": """
        class Trainer:
            def __init__(self, model):
                self.model = model
        def run(trainer):
            >>> trainer.model
        run(Trainer(MADE))
    """,
    "attribute of an instance, annotated": """
        class Trainer:
            def __init__(self):
                self.model = MADE
        def run(trainer: Trainer):
            >>> trainer.model
    """,
    "attribute of an instance, annotated in a string": """
        class Trainer:
            def __init__(self):
                self.model = MADE
            def other(self, trainer: "Trainer | None"):
                >>> trainer.model
    """,
    "attribute stored from outside": """
        class Trainer:
            model = None
            def run(self):
                >>> self.model
        trainer = Trainer()
        trainer.model = MADE
        trainer.run()
    """,
    "attribute, setattr": """
        class Trainer:
            def setup(self):
                setattr(self, "model", MADE)
            def run(self):
                >>> self.model
    """,
    "attribute, getattr": """
        class Trainer:
            def setup(self):
                self.model = MADE
            def run(self):
                model = getattr(self, "model", None)
                >>> model
    """,
    "attribute of an attribute": """
        class Actor:
            def __init__(self):
                self.model = MADE
        class Trainer:
            def __init__(self):
                self.actor = Actor()
            def run(self):
                >>> self.actor.model
    """,
    "attribute of a list's element": """
        class Actor:
            def __init__(self):
                self.model = MADE
        for actor in [Actor(), Actor()]:
            >>> actor.model
    """,
    "part of a model that is wrapped from outside": """
        class Trainer:
            def __init__(self):
                self.pair = Net()
                self.pair.generator = MADE
            def run(self):
                >>> self.pair.generator
    """,
    "property": """
        class Trainer:
            def __init__(self):
                self._model = MADE
            @property
            def model(self):
                return self._model
            def run(self):
                >>> self.model
    """,
    "property from outside": """
        class Trainer:
            def __init__(self):
                self._model = MADE
            @property
            def model(self):
                return self._model
        trainer = Trainer()
        >>> trainer.model
    """,
    "cached property": """
        class Trainer:
            @functools.cached_property
            def model(self):
                return MADE
            def run(self):
                >>> self.model
    """,
    "class attribute": """
        class Holder:
            model = None
        Holder.model = MADE
        def run():
            >>> Holder.model
    """,
    "list of self": """
        class Trainer:
            def __init__(self):
                self.models = [MADE]
            def run(self):
                for model in self.models:
                    >>> model
    """,
    "list of self, appended": """
        class Trainer:
            def __init__(self):
                self.models = []
            def setup(self):
                self.models.append(MADE)
            def run(self):
                for i, model in enumerate(self.models):
                    >>> model
    """,
    "dict of self": """
        class Trainer:
            def __init__(self):
                self.models = {}
            def setup(self):
                self.models["actor"] = MADE
            def run(self):
                >>> self.models["actor"]
    """,
    "dict of self, items": """
        class Trainer:
            def __init__(self):
                self.models = {"actor": MADE}
            def run(self):
                for name, model in self.models.items():
                    >>> model
    """,
    "dict of self from a base": """
        class Base:
            def __init__(self):
                self.models = {}
        class Trainer(Base):
            def setup(self):
                self.models["actor"] = MADE
        class Special(Trainer):
            def run(self):
                >>> self.models["actor"]
    """,
    "base class": """
        class Base:
            def __init__(self):
                self.model = MADE
        class Trainer(Base):
            def run(self):
                >>> self.model
    """,
    "heir": """
        class Base:
            def run(self):
                >>> self.model
        class Trainer(Base):
            def __init__(self):
                self.model = MADE
        Trainer().run()
    """,
    "super": """
        class Base:
            def __init__(self, model):
                self.model = model
            def run(self):
                >>> self.model
        class Trainer(Base):
            def __init__(self):
                super().__init__(MADE)
    """,
    "super with a keyword": """
        class Base:
            def __init__(self, steps, model=None):
                self.model = model
            def run(self):
                >>> self.model
        class Trainer(Base):
            def __init__(self, model):
                super().__init__(3, model=model)
        Trainer(MADE)
    """,
    "named base": """
        class Base:
            def __init__(self, model):
                self.model = model
            def run(self):
                >>> self.model
        class Trainer(Base):
            def __init__(self):
                Base.__init__(self, MADE)
    """,
    "inherited constructor": """
        class Base:
            def __init__(self, model):
                self.model = model
        class Trainer(Base):
            def run(self):
                >>> self.model
        Trainer(MADE).run()
    """,
    "mixin": """
        class Saving:
            def run(self):
                >>> self.model
        class Loading:
            pass
        class Trainer(Saving, Loading):
            def __init__(self):
                self.model = MADE
    """,
    "abstract method": """
        class Base:
            def build(self):
                raise NotImplementedError
            def run(self):
                model = self.build()
                >>> model
        class Trainer(Base):
            def build(self):
                return MADE
        Trainer().run()
    """,
    "hook given the model": """
        class Callback:
            def on_end(self, model):
                pass
        class Saving(Callback):
            def on_end(self, model):
                >>> model
        class Trainer:
            def __init__(self):
                self.callbacks = [Saving()]
            def run(self):
                for callback in self.callbacks:
                    callback.on_end(MADE)
    """,
    "dataclass": """
        @dataclasses.dataclass
        class State:
            steps: int
            model: nn.Module
        state = State(3, MADE)
        >>> state.model
    """,
    "dataclass, keyword": """
        @dataclasses.dataclass
        class State:
            model: nn.Module
            steps: int = 3
            def run(self):
                >>> self.model
        State(model=MADE).run()
    """,
    "dataclass, inherited field": """
        @dataclasses.dataclass
        class Base:
            model: nn.Module
        @dataclasses.dataclass
        class State(Base):
            steps: int = 3
        state = State(MADE, 3)
        >>> state.model
    """,
    "dataclass, replaced": """
        @dataclasses.dataclass
        class State:
            model: nn.Module
            steps: int = 3
        state = State(Net())
        state = dataclasses.replace(state, model=MADE)
        >>> state.model
    """,
    "dataclass, default later stored": """
        @dataclasses.dataclass
        class State:
            model: nn.Module = None
        state = State()
        state.model = MADE
        def run(state: State):
            >>> state.model
    """,
    "named tuple": """
        class Made(typing.NamedTuple):
            model: nn.Module
            steps: int
        made = Made(MADE, 3)
        >>> made.model
    """,
    "named tuple, unpacked": """
        class Made(typing.NamedTuple):
            model: nn.Module
            steps: int
        def build():
            return Made(MADE, 3)
        model, steps = build()
        >>> model
    """,
    "named tuple by item": """
        class Made(typing.NamedTuple):
            model: nn.Module
            steps: int
        made = Made(steps=3, model=MADE)
        model = made[0]
        >>> model
    """,
    "collections.namedtuple": """
        Made = collections.namedtuple("Made", ["model", "steps"])
        made = Made(MADE, 3)
        >>> made.model
    """,
    "collections.namedtuple in one string": """
        Made = collections.namedtuple("Made", "steps model")
        def build():
            return Made(3, MADE)
        steps, model = build()
        >>> model
    """,
    "unwrap helper": """
        def unwrap(net):
            return net._orig_mod if hasattr(net, "_orig_mod") else net
        model = unwrap(MADE)
        >>> model
    """,
    "compiled original": """
        model = torch.compile(MADE)
        model = model._orig_mod
        >>> model
    """,
    "loop that trains": """
        model = MADE
        for step in range(3):
            loss = model(step)
            loss.backward()
            >>> model
    """,
    "while": """
        model = MADE
        while True:
            >>> model
    """,
    "function behind its caller": """
        def main():
            model = Net()
            model = MADE
            evaluate(model)
        def evaluate(model):
            >>> model
        if __name__ == "__main__":
            main()
    """,
    "recursion": """
        def run(net, depth):
            if depth:
                run(net, depth - 1)
            >>> net
        run(MADE, 3)
    """,
    "wrapped in place": """
        class Trainer:
            def __init__(self):
                self.model = Net()
            def shard(self):
                self.model = MADE
            def run(self):
                >>> self.model
    """,
    "callable object": """
        class Build:
            def __call__(self):
                return MADE
        build = Build()
        model = build()
        >>> model
    """,
    "table of functions": """
        def build():
            return MADE
        BUILDERS = {"fsdp": build}
        model = BUILDERS[args.strategy]()
        >>> model
    """,
    "chosen function": """
        def sharded():
            return MADE
        def plain():
            return Net()
        build = sharded if args.fsdp else plain
        model = build()
        >>> model
    """,
    "deleted and made again": """
        model = Net()
        del model
        model = MADE
        >>> model
    """,
}

SEVERAL_FILES = {
    "imported function": {
        "main.py": """
            from build import build
            model = build()
            >>> model
        """,
        "build.py": """
            def build():
                return MADE
        """,
    },
    "imported module": {
        "main.py": """
            import pkg.build as builders
            model = builders.build()
            >>> model
        """,
        "pkg/__init__.py": "",
        "pkg/build.py": """
            def build():
                return MADE
        """,
    },
    "re-exported": {
        "main.py": """
            from pkg import build
            model, steps = build()
            >>> model
        """,
        "pkg/__init__.py": "from .inner import build\n",
        "pkg/inner.py": """
            def build():
                return MADE, 3
        """,
    },
    "imported variable": {
        "main.py": """
            from state import model
            >>> model
        """,
        "state.py": """
            model = MADE
        """,
    },
    "variable of an imported module": {
        "main.py": """
            import state
            >>> state.model
        """,
        "state.py": """
            model = MADE
        """,
    },
    "stored into an imported module": {
        "main.py": """
            import state
            state.model = MADE
        """,
        "state.py": """
            model = None
            def run():
                >>> model
        """,
    },
    "imported variable by star": {
        "main.py": """
            from state import *
            >>> model
        """,
        "state.py": """
            model = MADE
        """,
    },
    "parameter in another file": {
        "main.py": """
            from saving import save
            save(MADE, "f")
        """,
        "saving.py": """
            def save(net, path):
                >>> net
        """,
    },
    "class in another file": {
        "main.py": """
            from trainer import Trainer
            trainer = Trainer(MADE)
            trainer.run()
        """,
        "trainer.py": """
            class Trainer:
                def __init__(self, model):
                    self.model = model
                def run(self):
                    >>> self.model
        """,
    },
    "base in another file": {
        "main.py": """
            from base import Base
            class Trainer(Base):
                def setup(self):
                    self.model = MADE
        """,
        "base.py": """
            class Base:
                def run(self):
                    >>> self.model
        """,
    },
    "mixins in other files": {
        "main.py": """
            from loading import Loading
            from saving import Saving
            class Trainer(Loading, Saving):
                pass
        """,
        "loading.py": """
            class Loading:
                def setup(self):
                    self.model = MADE
        """,
        "saving.py": """
            class Saving:
                def run(self):
                    >>> self.model
        """,
    },
    "dataclass in another file": {
        "main.py": """
            from state import State
            from saving import save
            save(State(model=MADE))
        """,
        "state.py": """
            import dataclasses
            @dataclasses.dataclass
            class State:
                model: object
                steps: int = 0
        """,
        "saving.py": """
            from state import State
            def save(state: State):
                >>> state.model
        """,
    },
    "singleton in another file": {
        "main.py": """
            from context import CONTEXT
            CONTEXT.model = MADE
        """,
        "context.py": """
            class Context:
                model = None
            CONTEXT = Context()
        """,
        "saving.py": """
            from context import CONTEXT
            def save():
                >>> CONTEXT.model
        """,
    },
    "dict in another file": {
        "main.py": """
            from registry import MODELS
            MODELS["actor"] = MADE
        """,
        "registry.py": "MODELS = {}\n",
        "saving.py": """
            from registry import MODELS
            def save():
                >>> MODELS["actor"]
        """,
    },
    "worker called by name": {
        "main.py": """
            from trainer import Trainer
            def worker(rank):
                trainer = Trainer()
                trainer.setup()
                trainer.save()
            torch.multiprocessing.spawn(worker)
        """,
        "trainer.py": """
            from build import build
            class Trainer:
                def setup(self):
                    self.model = build()
                def save(self):
                    save(self.model)
            def save(net):
                >>> net
        """,
        "build.py": """
            def build():
                return MADE
        """,
    },
}

CARRIERS: dict[str, dict[str, str]] = {
    **{name: {"main.py": text} for name, text in ONE_FILE.items()},
    **SEVERAL_FILES,
}
