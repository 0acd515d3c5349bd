class Switch:
    is_on = True
