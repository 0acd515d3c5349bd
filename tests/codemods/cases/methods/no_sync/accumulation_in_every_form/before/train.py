import torch

from accumulate import conditional, context_in_a_name, in_a_class, method_first, wrap
from model import Model


def main(out, sharded):
    results = {}
    for form in (conditional, context_in_a_name, method_first):
        torch.manual_seed(3)
        model = wrap(Model(), sharded)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        form(model, optimizer)
        results[form.__name__] = model
    torch.manual_seed(3)
    results["in_a_class"] = in_a_class(sharded)
    return results
