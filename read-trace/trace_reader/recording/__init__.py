"""Recording in a program of one's own: a handler for torch.profiler, a block to record, a fixture for pytest.

It needs torch, which is imported when something is recorded.
"""
