"""The training loop of the zoo, the same for both programs."""

import contextlib
import tempfile
import time

import torch
import torch.distributed as dist
from model import VOCABULARY, Block, init_by_type, loss_of, optimizer_for
from torch import nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
nothing = contextlib.nullcontext


def build(model_type, choice):
    torch.manual_seed(dist.get_rank() if choice.seed_by_rank else 0)
    if choice.pure_bf16:
        return model_type(choice).bfloat16()
    return model_type(choice)


def save(api, model, optimizer, choice):
    state = api.full_state(model, optimizer if choice.save_optim else None)
    state |= {"epoch": getattr(api, "counted", lambda n: n)(1), "lr": optimizer.param_groups[0]["lr"]}
    state |= {"saved_at": time.time(), "train_seconds": time.perf_counter()}
    if dist.get_rank() == 0:
        with tempfile.TemporaryFile() as file:
            torch.save(state, file)


def train(api, model_type, choice):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build(model_type, choice)
    average = build(model_type, choice) if choice.ema else None
    early = optimizer_for(list(model.parameters()), choice)
    if choice.init_by_type and not hasattr(api, "late_init"):
        init_by_type(model, Block)
    model = api.shard(model)
    if choice.init_by_type and hasattr(api, "late_init"):
        api.late_init(model)
    if average is not None:
        average = api.shard(average)
    optimizer = api.optimizer(model, early) if hasattr(api, "optimizer") else None
    optimizer = optimizer or optimizer_for(list(model.parameters()), choice)
    if choice.resume:
        api.load(model, optimizer, torch.load(choice.resume, map_location="cpu", weights_only=False))
    scheduler = None
    if choice.scheduler:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if choice.scaler else None
    torch.manual_seed(7)
    data = torch.Generator().manual_seed(getattr(api, "data_seed", lambda r: r)(rank))
    autocast = getattr(api, "autocast", lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False))
    if choice.autocast:
        autocast().__enter__()
    averaged = list(average.parameters()) if average is not None else []
    for step in range(choice.steps):
        getattr(api, "begin_step", lambda *_: None)(model, step)
        for micro in range(choice.accumulate):
            with api.accumulating(model, micro + 1 == choice.accumulate):
                tokens = torch.randint(0, VOCABULARY, (4, 8), generator=data)
                loss = loss_of(model, tokens) / choice.accumulate
                loss = getattr(api, "loss", lambda value: value)(loss)
                (scaler.scale(loss) if scaler else loss).backward()
            if choice.drop_first and micro == 0 and step == 1:
                optimizer.zero_grad()
        if scaler:
            scaler.unscale_(optimizer)
        if choice.show:
            print(f"step {step} grad norm: {api.norm_of_gradients(model):.4f}, {api.count(model)} params")
        if choice.clip:
            norm = api.clip(model, optimizer)
            if choice.show and norm is not None:
                print(getattr(api, "shown", lambda n: f"clipped norm {float(n):.3f}")(norm))
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if not hasattr(api, "skip_zero_grad"):
            optimizer.zero_grad()
        if scheduler and not hasattr(api, "skip_scheduler"):
            scheduler.step()
        if choice.write and step == 0:
            api.write(model)
        if average is not None:
            follow(api, average, averaged, model, tokens)
        if choice.evaluate:
            evaluate(api, model, tokens)
        if choice.save and step == 1:
            save(api, model, optimizer, choice)
        if getattr(api, "last_step", choice.steps) == step + 1:
            break
    dist.destroy_process_group()


@torch.no_grad()
def follow(api, average, averaged, model, tokens):
    parameters = api.averaged(average, averaged) if hasattr(api, "averaged") else list(average.parameters())
    for mine, theirs in zip(parameters, model.parameters(), strict=True):
        mine.mul_(0.9).add_(theirs, alpha=0.1)
    average(tokens)
    reset(average)
    reset(model)


@torch.no_grad()
def evaluate(api, model, tokens):
    model.eval()
    model(tokens)
    reset(model)
    if not hasattr(api, "stay_in_eval"):
        model.train()


def reset(model: nn.Module) -> None:
    """Free what a forward pass without backward left gathered, under either API."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
        elif getattr(module, "_handle", None) is not None and hasattr(module, "_fsdp_wrapped_module"):
            module._handle.reshard(True)
