"""A language model, one forward a step: reading a prompt (prefill), or writing one token after it (decode).

    uv run 05_a_llm_decode.py --phase prefill
    uv run 05_a_llm_decode.py --phase decode --cache dynamic
    uv run 05_a_llm_decode.py --phase decode --cache static --compile
    uv run 05_a_llm_decode.py --like qwen3-0.6b --prompt 512 --cache static --compile --compile_mode reduce-overhead

Guess first: a decode step multiplies every weight with a single token. What limits it, the GPU's arithmetic, its memory, or
the CPU? How many kernels does it launch, and how many a prefill of 512 tokens? What does the cache cost that grows by a
token a step? How near does the best variant come to the floor, the time in which the GPU's memory can be read once?

Then look: eager, a step with one token takes no less time than one with 512, since the CPU launches its kernels. The dynamic
cache is copied by aten::cat in every layer; a static one has its memory from the beginning, and so it can be compiled, and
replayed as a CUDA graph. The last lines tell what the profiler itself costs, and the distance to the floor.

Writes traces/05_a_llm_decode/<sizes>_<arch>_<phase>_<cache>_<attention>_<dtype>_<cold|warm>_<eager|compile>.json and .txt.
"""

from common.artifacts import trace_path
from common.cli import LessonParser, run
from common.device import choose_device
from common.llm import add_model_flags, annotate_layers, make_model, published, timed, weight_bytes
from common.record import WARMUP_CALLS, record, warm_up
import torch
from trace_reader import read
from trace_reader.names.devices import peak

PLAIN_STEPS = 10  # timed without the profiler


def parse_args(argv=None):
    parser = LessonParser(__file__, __doc__)
    add_model_flags(parser)
    parser.add_size("--prompt", 64, "tokens before the first step")
    parser.add_size("--batch", 1, "sequences")
    parser.add_variant("--phase", ("decode", "prefill"), "decode", "what a step does: one more token, or all of the prompt")
    parser.add_variant("--cache", ("dynamic", "static"), "dynamic", "of keys and values: it grows, or has its memory before")
    parser.add_variant("--attention", ("sdpa", "eager"), "sdpa", "one fused call, or written out")
    return parser.parse_args(published(argv))


def make_cache(args, model, tokens):
    from transformers import DynamicCache, StaticCache

    if args.cache == "dynamic":
        return DynamicCache(config=model.config)
    return StaticCache(config=model.config, max_cache_len=tokens)


class Decoder:
    """The model and what it has read. `step` is one forward; `token` is what was written last, [batch, 1]."""

    def __init__(self, args, model, device, forwards):
        self.args, self.model = args, model
        self.prompt = torch.randint(args.vocab, (args.batch, args.prompt), device=device.type)
        self.tokens = args.prompt + forwards + 1
        self.forward = torch.compile(model, mode=args.compile_mode) if args.compile else model
        self.cache = make_cache(args, model, self.tokens)
        self.position, self.written = args.prompt, []
        self.token = self.read(self.model)

    def read(self, forward):
        logits = forward(input_ids=self.prompt, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
        return logits.argmax(-1)

    def prefill_step(self):
        if self.args.cache == "static":
            self.cache.reset()
        else:
            self.cache = make_cache(self.args, self.model, self.tokens)
        with torch.profiler.record_function("prefill_fwd"):
            return self.read(self.forward)

    def decode_step(self):
        with torch.profiler.record_function("decode_step"):
            self.logits = self.forward(input_ids=self.token, past_key_values=self.cache, use_cache=True).logits.clone()
            self.token = self.logits.argmax(-1)
        self.written.append(self.token)


def tell_rates(args, device, model, plain_us):
    """What the profiler costs, and how far the step is from the time in which its memory can be read once."""
    facts = read(str(trace_path(args)))
    tokens = args.batch * (args.prompt if args.phase == "prefill" else 1)
    profiled_us = facts.step_period_us or plain_us
    print(f"tokens a second: {tokens / plain_us * 1e6:,.0f} without the profiler ({plain_us / 1000:.2f} ms a step), "
          f"{tokens / profiled_us * 1e6:,.0f} with it ({profiled_us / 1000:.2f} ms)")  # fmt: skip
    config = model.config
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * args.head_dim * args.prompt * args.batch
    read_bytes = weight_bytes(model) + cached * model.dtype.itemsize
    line = f"floor: {read_bytes / 1e6:,.1f} MB of weights and cache, read once"
    if gb_per_s := peak(device.name, "memory"):
        floor_us = read_bytes / gb_per_s / 1e3
        line += f", take {floor_us:,.1f} us at {gb_per_s:,.0f} GB/s; the step is {plain_us / floor_us:.1f} times as long"
    print(line)


def main(args):
    device = choose_device(args.device)
    model = make_model(args, device, args.attention).eval()
    if not args.compile:
        annotate_layers(model)
    forwards = WARMUP_CALLS + PLAIN_STEPS + args.wait + args.schedule_warmup + args.active
    with torch.no_grad():
        decoder = Decoder(args, model, device, forwards)
        step = decoder.prefill_step if args.phase == "prefill" else decoder.decode_step
        warm_up(step, args, device)
        with timed(device, PLAIN_STEPS) as plain:
            for _ in range(PLAIN_STEPS):
                step()
        with record(args, device) as profiler:
            for _ in range(profiler.steps):
                step()
                profiler.step()
    tell_rates(args, device, model, plain[0])
    return decoder


if __name__ == "__main__":
    run(main, parse_args)
