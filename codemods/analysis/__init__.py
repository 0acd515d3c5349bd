"""From modules to linked facts: names, values, and which names hold a sharded model."""
