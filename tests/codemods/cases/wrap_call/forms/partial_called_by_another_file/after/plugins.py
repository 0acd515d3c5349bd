import library


def register(name, value):
    library.put(name, value)
