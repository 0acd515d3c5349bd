import library


def build(model, sync):
    make = library.take("wrapper")
    return make(model, sync_module_states=sync)
