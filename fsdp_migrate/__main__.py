"""`python -m fsdp_migrate` is the same program as `fsdp-migrate`."""

from fsdp_migrate.cli.app import main

if __name__ == "__main__":
    main()
