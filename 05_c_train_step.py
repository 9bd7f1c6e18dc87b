"""One training step of a language model: what do forward, loss, backward and optimizer cost?

    uv run 05_c_train_step.py --implementation fused
    uv run 05_c_train_step.py --implementation for-loop
    uv run 05_c_train_step.py --checkpoint --profile_memory
    uv run 05_c_train_step.py --like qwen3-0.6b --batch 4 --seq 1024 --log_loss

Guess first: for each kernel of the forward pass, how many does the backward pass launch? How many does the optimizer launch
for all parameters: one by one (for-loop), together (foreach), or fused? What does it cost to print the loss in every step when
the GPU is the bottleneck, and when the CPU is? What does activation checkpointing trade for memory?

Then look: on a GPU, the backward pass runs on a thread of its own and takes about twice the forward pass's GPU time;
read_trace.py --by layer shows both side by side. The for-loop launches eight kernels per parameter, the fused optimizer a few
for all of them. With --log_loss each step ends in a wait, and with --loader it may begin with one. With --checkpoint, each
layer's forward pass runs again inside the backward pass.

Writes traces/05_c_train_step/<sizes>_<arch>_<optimizer>_<implementation>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

import time

from common.cli import LessonParser, count, positive_int, run
from common.device import choose_device
from common.plain_step import time_plain_steps
from common.record import record, warm_up
from common.summary import finish
from models.llm import add_model_flags, annotate_layers, make_model, published
import torch
from torch.nn import functional as F
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
IMPLEMENTATIONS = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False, "fused": False},
}
TRANSFORM_S = 0.002  # seconds per sample of --loader


class Samples(Dataset):
    """Random tokens [seq + 1], each after a transform that takes CPU time."""

    def __init__(self, args):
        self.args = args

    def __len__(self):
        return 2**31

    def __getitem__(self, number):
        until = time.perf_counter() + TRANSFORM_S
        while time.perf_counter() < until:
            pass
        generator = torch.Generator().manual_seed(self.args.seed + number)
        return torch.randint(self.args.vocab, (self.args.seq + 1,), generator=generator)


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    add_model_flags(parser)
    parser.add_size("--batch", 4, "sequences")
    parser.add_size("--seq", 64, "tokens per sequence")
    parser.add_variant("--optimizer", OPTIMIZERS, "adamw", "the optimizer")
    parser.add_variant("--implementation", IMPLEMENTATIONS, "fused", "how the optimizer updates the weights")
    parser.add_argument(
        "--accumulate", type=positive_int, default=1, metavar="N", help="backward passes per optimizer step, one if left out"
    )
    parser.add_argument("--checkpoint", action="store_true", help="drop the layers' activations and compute them again")
    parser.add_argument("--log_loss", action="store_true", help="read the loss (.item()) in every step")
    parser.add_argument("--loader", action="store_true", help="take the batches from a DataLoader with an expensive transform")
    parser.add_argument("--workers", type=count, default=0, metavar="N", help="worker processes of that DataLoader (default: 0)")
    args = parser.parse_args(published(argv))
    if args.workers and not args.loader:
        parser.error(f"--workers {args.workers} changes nothing without --loader: add --loader")
    return args


def main(args):
    device = choose_device(args.device)
    model = make_model(args, device).train()
    if args.checkpoint:
        # older versions of transformers call it gradient checkpointing
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if not args.compile:
        annotate_layers(model)
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), lr=1e-4, **IMPLEMENTATIONS[args.implementation])
    forward = torch.compile(model, mode=args.compile_mode) if args.compile else model
    fixed = torch.randint(args.vocab, (args.batch, args.seq + 1), device=device.type)
    loader = iter(DataLoader(Samples(args), args.batch, num_workers=args.workers)) if args.loader else None
    losses = []

    def step():
        for _ in range(args.accumulate):
            tokens = fixed if loader is None else next(loader).to(device.type)  # [batch, seq + 1]
            with record_function("forward"):
                logits = forward(input_ids=tokens[:, :-1], use_cache=False).logits  # [batch, seq, vocab]
            with record_function("loss"):
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / args.accumulate
            with record_function("backward"):
                loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item() if args.log_loss else loss.detach())

    warm_up(step, args, device)
    with record(args, device) as profiler:
        for _ in profiler.steps:
            step()
            profiler.step()
    finish(profiler.files, time_plain_steps(step, args, device), args, device)
    return [float(loss) for loss in losses]


if __name__ == "__main__":
    run(main, parse_args)
