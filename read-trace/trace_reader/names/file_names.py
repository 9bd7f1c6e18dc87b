"""What traces' files are called."""

STACKS_NAME = "_stacks"  # behind the name of a recording, of another one of its program with stacks
