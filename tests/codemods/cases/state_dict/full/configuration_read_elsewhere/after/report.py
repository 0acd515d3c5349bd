from conf import save_policy as policy


def describe():
    return policy.rank0_only
