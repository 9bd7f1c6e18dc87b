"""What traces' files are called, and the file beside them."""

STACKS_NAME = "_stacks"  # behind the name of a recording, of another one of its program with stacks
PRICES_NAME = "profiler_cost.json"  # what the profiler costs on a host
