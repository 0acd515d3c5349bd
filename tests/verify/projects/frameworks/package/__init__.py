"""A program that is started as `-m package.train`."""
