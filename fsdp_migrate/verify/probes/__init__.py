"""What is observed of a running job, each through one of torch's global hooks."""
