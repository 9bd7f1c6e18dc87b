"""What a kernel's name says: who wrote it, for what architecture and type, with what tile. What it does not say is None.

Examples of the names that are understood, with their sources, are in tests/test_kernel_names.py.
"""

from functools import cache
import re

import msgspec

INDUCTOR_KINDS = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent reduction",
    "tem": "template",
    "for": "foreach",
    "mm": "matmul",
}
# Names of ops with an underscore inside: Inductor joins the names that it merged with underscores, too.
COMPOUND_OPS = [
    "_unsafe_view",
    "_to_copy",
    "_softmax",
    "_log_softmax",
    *(f"_scaled_dot_product_{backend}_attention" for backend in ("flash", "efficient", "cudnn", "fused")),
    "split_with_sizes",
    "index_copy",
    "native_layer_norm",
    "native_group_norm",
    "native_dropout",
    "masked_fill",
    "index_select",
    "slice_scatter",
    "select_scatter",
    "constant_pad_nd",
    "scalar_tensor",
    "new_zeros",
    "new_ones",
    "new_full",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "rms_norm",
    "layer_norm",
    "leaky_relu",
    "logical_and",
    "logical_or",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_not",
    "index_put",
    "embedding_dense_backward",
    "native_layer_norm_backward",
    "threshold_backward",
    "gelu_backward",
    "_safe_softmax",
    "convert_element_type",
    "prepare_softmax_online",
    "as_strided",
    "log_sigmoid",
    "scatter_add",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "native_batch_norm",
    "batch_norm",
    "clamp_min",
    "clamp_max",
]
ARCHITECTURES = {"volta": "sm70", "turing": "sm75", "ampere": "sm80", "hopper": "sm90"}
DTYPES = {
    "bf16": "bf16", "fp16": "fp16", "f16": "fp16", "h": "fp16", "t": "bf16", "f32": "fp32", "fp32": "fp32",
    "tf32": "tf32", "s": "fp32", "sgemm": "fp32", "dgemm": "fp64", "hgemm": "fp16", "e4m3": "fp8", "s8": "int8",
}  # fmt: skip


class KernelName(msgspec.Struct, frozen=True):
    """A decoded name. `label` is short; `tile` is as the name writes it; `unit` is tensor cores or CUDA cores."""

    label: str
    family: str
    architecture: str | None = None
    dtype: str | None = None
    tile: str | None = None
    stages: int | None = None
    layout: str | None = None
    epilogue: str | None = None
    unit: str | None = None
    inductor_kind: str | None = None
    merged_ops: tuple[str, ...] = ()
    knob: str | None = None

    @property
    def is_gemm(self) -> bool:
        return self.family in GEMM_FAMILIES and "reduce" not in self.label

    @property
    def is_fused_attention(self) -> bool:
        return self.family in FUSED_ATTENTION_FAMILIES

    @property
    def is_softmax(self) -> bool:
        return self.family == "softmax" or any("softmax" in op for op in self.merged_ops)


_COLLECTIVE = re.compile(
    r"^(?:nccl|rccl|oneccl|hccl|xccl|mccl)|nccl(?:Dev)?Kernel|oneccl|"
    r"(?:multimem|one_?shot|two_?shot|cross_device)_?(?:lamport_)?(?:all_?reduce|all_?gather|reduce(?:_scatter)?)|"
    r"(?:all_?reduce|all_?gather|reduce_?scatter)_?fusion|mscclpp|deep_ep::\w+::(?:dispatch|combine)|moe_?(?:a2a|all_?to_?all)",
    re.IGNORECASE,
)
_ON_CPU = re.compile(r"(?:gloo|mpi|ucc):")
FUSED_ATTENTION_FAMILIES = ("FlashAttention", "memory-efficient attention", "cuDNN attention")
GEMM_FAMILIES = ("cuBLAS", "cuBLAS nvjet", "CUTLASS", "xmma", "ROCm Tensile")


def is_collective(name: str) -> bool:
    """Whether a kernel is communication between devices: NCCL's, RCCL's and kin."""
    return _COLLECTIVE.search(name) is not None


def is_collective_on_cpu(annotation: str) -> bool:
    """Whether an annotation is around the work of a backend that communicates on the CPU."""
    return _ON_CPU.match(annotation) is not None


@cache
def decode_name(name: str) -> KernelName:
    """Decode the name of a kernel, a memcpy or a memset."""
    for pattern, decode in _DECODERS:
        if match := pattern.search(name):
            return decode(name, match)
    return KernelName(_plain(name), "unknown", dtype=_template_dtype(name))


def _nvjet(name: str, match: re.Match[str]) -> KernelName:
    # nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT: types, tile, k x stages, cluster, direction, epilogue, layout
    tail = match["tail"].split("_")
    layout = tail[-1] if re.fullmatch(r"[NT]{3}", tail[-1]) else None
    epilogue = [part for part in tail if part in ("bz", "badd", "bias", "relu", "gelu", "aux")]
    return KernelName(
        f"nvjet GEMM {match['tile']}",
        "cuBLAS nvjet",
        architecture=match["arch"],
        dtype=DTYPES.get(match["types"][0]) if match["types"][0] in "ht" else None,
        tile=match["tile"],
        stages=int(match["stages"]),
        layout=layout,
        epilogue="_".join(epilogue) or None,
    )


def _cublas(name: str, match: re.Match[str]) -> KernelName:
    # ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn, ampere_sgemm_128x64_tn
    rest = match["rest"]
    tile = re.search(r"_(\d+x\d+)(?=_)", rest)
    stages = re.search(r"stages_\d+x(\d+)", rest)
    layout = re.search(r"_([nt]{2})(?:_|$)", rest)
    dtype = match["dtype"] or match["gemm"]
    unit = "tensor cores" if re.match(r"[a-z]*\d{3,}", match["gemm"]) else None
    if match["gemm"] in ("sgemm", "dgemm"):
        unit = "CUDA cores"
    return KernelName(
        f"{match['gemm']} {tile[1]}" if tile else match["gemm"],
        "cuBLAS",
        architecture=ARCHITECTURES.get(match["arch"]),
        dtype=DTYPES.get(dtype),
        tile=tile[1] if tile else None,
        stages=int(stages[1]) if stages else None,
        layout=layout[1] if layout else None,
        unit=unit,
    )


def _cutlass(name: str, match: re.Match[str]) -> KernelName:
    # cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8, cutlass_80_simt_sgemm_256x128_8x4_nn_align1
    rest = match["rest"]
    tile = re.search(r"_(\d+x\d+)_(?:\d+x(\d+))?", rest)
    layout = re.search(r"_([nt]{2})_align", rest)
    dtype = re.search(r"_(bf16|f16|tf32|f32|s8|e4m3)_", rest) or re.search(r"(sgemm|dgemm|hgemm)", rest)
    unit = "tensor cores" if "tensorop" in rest else "CUDA cores" if "simt" in rest else None
    epilogue = re.search(r"align\d+_(bias|relu|gelu)\w*", rest)
    return KernelName(
        f"cutlass GEMM {tile[1]}" if tile else "cutlass GEMM",
        "CUTLASS",
        architecture=f"sm{match['arch']}",
        dtype=DTYPES.get(dtype[1]) if dtype else None,
        tile=tile[1] if tile else None,
        stages=int(tile[2]) if tile and tile[2] else None,
        layout=layout[1] if layout else None,
        epilogue=epilogue[1] if epilogue else None,
        unit=unit,
    )


def _xmma(name: str, match: re.Match[str]) -> KernelName:
    # sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
    tile = re.search(r"tilesize(\d+x\d+x\d+)", name)
    stages = re.search(r"_stage(\d+)", name)
    layout = re.search(r"_([nt]{2})_[nt]_", name)
    unit = "CUDA cores" if "ffma" in name else "tensor cores" if re.search(r"tensor\d+x\d+x\d+", name) else None
    return KernelName(
        f"xmma {match['kind']} {tile[1]}" if tile else f"xmma {match['kind']}",
        "xmma",
        architecture=match["arch"],
        dtype="tf32" if "_tf32" in name else DTYPES.get(match["dtype"]),  # its inputs are fp32: ..._f32f32_tf32f32_f32_...
        tile=tile[1] if tile else None,
        stages=int(stages[1]) if stages else None,
        layout=layout[1] if layout else None,
        unit=unit,
    )


def _inductor(name: str, match: re.Match[str]) -> KernelName:
    ops = split_ops(match["ops"] or "")
    visible = [op for op in ops if op not in VIEWS] or list(ops)
    kind = INDUCTOR_KINDS[match["kind"]]
    label = f"triton {'+'.join(visible)}" if visible else f"triton {kind}"
    return KernelName(label, "Triton (Inductor)", inductor_kind=kind, merged_ops=ops)


VIEWS = ("_unsafe_view", "view", "reshape", "expand", "t", "transpose", "permute", "unsqueeze", "squeeze", "as_strided")


def split_ops(text: str) -> tuple[str, ...]:
    """The ops in Inductor's `_unsafe_view_gelu_mul`: `_unsafe_view`, `gelu`, `mul`."""
    ops = []
    rest = text.rstrip("_")
    while rest:
        known = max((op for op in COMPOUND_OPS if re.match(rf"{op}(?:_|$)", rest)), key=len, default=None)
        op = known or (re.match(r"_?[^_]+", rest) or re.match(r".+", rest))[0]  # type: ignore[index]
        ops.append(op)
        rest = rest[len(op) :].removeprefix("_")
    return tuple(ops)


def _aten(name: str, match: re.Match[str]) -> KernelName:
    family, kind = "ATen elementwise", ""
    if "multi_tensor_apply_kernel" in name:
        family, kind = "multi-tensor", "foreach "
    elif re.search(r"reduce_kernel", name):
        family, kind = "ATen reduce", "reduce "
    elif re.search(r"softmax|SoftMax", name):
        family = "softmax"
    elif not re.search(r"elementwise|_kernel_impl|triu_tril|distribution", name):
        family = "ATen"
    return KernelName(f"{kind}{_aten_op(name, family)}", family, dtype=_template_dtype(name))


_ATEN_OPS = (
    re.compile(r"CUDAFunctor_(\w+)"),
    re.compile(r"binary_internal::(\w+?)Functor"),
    re.compile(r"(\w+?)CUDAKernelImpl"),
    re.compile(r"native::(?:\(anonymous namespace\)::)?(\w+?)(?:_kernel)?_cuda(?:_impl)?\b"),
    re.compile(r"native::(?:\(anonymous namespace\)::)?(\w+?)_kernel_impl"),
    re.compile(r"native::(?:\(anonymous namespace\)::)?(\w+?)_(?:kernel|functor)\b(?!_)"),
    re.compile(r"native::(\w+?)(?:Functor|Ops|Op)\b(?!<c10::\w+, \d)"),
    re.compile(r"native::(?:\(anonymous namespace\)::)?(Copy|FillFunctor|triu_tril|tril|arange)\w*"),
)
_GENERIC = (
    "unary",
    "binary",
    "aunary",
    "bunary",
    "unaryop",
    "binaryop",
    "func_wrapper",
    "elementwise",
    "tensorlist",
    "gpu",
    "reduce",
    "multi_tensor_apply",
    "vectorized_elementwise",
    "unrolled_elementwise",
)


def _aten_op(name: str, family: str) -> str:
    for pattern in _ATEN_OPS:
        for match in pattern.finditer(name):
            op = re.sub(r"_?kernel$|_out$", "", match[1])
            op = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower().removeprefix("direct_")
            if op not in _GENERIC:
                return op
    return family.removeprefix("ATen ") if family in ("softmax", "multi-tensor") else _plain(name)


def _template_dtype(name: str) -> str | None:
    for word, dtype in (("c10::BFloat16", "bf16"), ("c10::Half", "fp16"), ("<float", "fp32"), ("<double", "fp64")):
        if word in name:
            return dtype
    return None


def _flash(name: str, match: re.Match[str]) -> KernelName:
    # void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, ...
    traits = re.search(r"kernel_traits<(\d+), ?(\d+), ?(\d+),", name)
    dtype = "bf16" if "bfloat16_t" in name else "fp16" if "half_t" in name else None
    tile = f"{traits[2]}x{traits[3]}" if traits else None
    direction = "bwd" if "bwd" in name else "fwd"
    return KernelName(f"flash attention {direction}", "FlashAttention", dtype=dtype, tile=tile)


def _efficient(name: str, match: re.Match[str]) -> KernelName:
    # fmha_cutlassF_bf16_aligned_64x64_rf_sm80
    return KernelName(
        f"efficient attention {'fwd' if match['way'] == 'F' else 'bwd'} {match['tile']}",
        "memory-efficient attention",
        architecture=match["arch"],
        dtype=DTYPES.get(match["dtype"]),
        tile=match["tile"],
    )


def _cudnn(name: str, match: re.Match[str]) -> KernelName:
    # cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0
    architecture = re.search(r"sm(\d+)", name)
    tile = re.search(r"_(\d+x\d+x\d+)", name)
    knob = re.search(r"knob_(\d+)", name)
    sdpa = re.search(r"sdpa|flash|fmha", name)
    if old := re.search(r"(?P<arch>volta|turing|ampere|maxwell)_(?P<type>s|h)cudnn_(?P<wino>winograd_)?(?P<tile>\d+x\d+)", name):
        # cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1: a convolution; scudnn is fp32, without tensor cores
        label = f"{old['type']}cudnn {'winograd ' if old['wino'] else ''}{old['tile']}"
        arch, dtype = ARCHITECTURES.get(old["arch"]), "fp32" if old["type"] == "s" else "fp16"
        return KernelName(label, "cuDNN", arch, dtype, old["tile"], unit="CUDA cores")
    if ("::" in name or "_engine<" in name) and not sdpa:
        # void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(...)
        kind = _template_dtype(name)
        unit = "CUDA cores" if kind == "fp32" and re.search(r"[dw]grad|winograd|conv|fft", name) else None
        return KernelName(f"cuDNN {_plain(name)}", "cuDNN", dtype=kind, unit=unit)
    return KernelName(
        ("cuDNN attention" if sdpa else "cuDNN") + (f" {tile[1]}" if tile else ""),
        "cuDNN attention" if sdpa else "cuDNN",
        architecture=f"sm{architecture[1]}" if architecture else None,
        dtype="fp32" if "_ffma_" in name else None,  # fused multiply-adds of float32: sm80_xmma_fprop_implicit_gemm_..._ffma_...
        tile=tile[1] if tile else None,
        unit="CUDA cores" if "_ffma_" in name else "tensor cores" if "mma" in name else None,
        knob=knob[1] if knob else None,
    )


def _nccl(name: str, match: re.Match[str]) -> KernelName:
    dtype = re.search(r"_(bf16|f16|f32|f64)_", name)
    return KernelName(f"NCCL {match['what']}", "NCCL/RCCL", dtype=DTYPES.get(dtype[1]) if dtype else None)


def _tensile(name: str, match: re.Match[str]) -> KernelName:
    # Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_...
    tile = re.search(r"_MT(\d+x\d+x\d+)", name)
    dtype = re.search(r"_B[a-z]+_([HBSD])", name)
    names = {"H": "fp16", "B": "bf16", "S": "fp32", "D": "fp64"}
    unit = "tensor cores" if re.search(r"_MI\d+x\d+", name) else None
    return KernelName(
        f"Tensile GEMM {tile[1]}" if tile else "Tensile GEMM",
        "ROCm Tensile",
        dtype=names[dtype[1]] if dtype else None,
        tile=tile[1] if tile else None,
        unit=unit,
    )


def _memory(name: str, match: re.Match[str]) -> KernelName:
    family = "memcpy" if name.lower().startswith(("memcpy", "copy")) else "memset"
    return KernelName(re.sub(r" \(Device -> Device\)| \(Unknown\)| \(Device\)", "", name), family)


def _library(name: str, match: re.Match[str]) -> KernelName:
    return KernelName(_plain(name), LIBRARIES[match["library"]], dtype=_template_dtype(name))


def _other_cublas(name: str, match: re.Match[str]) -> KernelName:
    label = "split-k reduce" if "splitKreduce" in name else "gemv" if "::gemv" in name else _plain(name)
    return KernelName(label, "cuBLAS", dtype=_template_dtype(name))


def _plain(name: str) -> str:
    """The function of a C++ signature: `void a::b<c>(d)` is `b`."""
    bare = re.sub(r"^(?:void|static void) ", "", name).replace("(anonymous namespace)::", "")
    bare = re.split(r"[<(]", bare, maxsplit=1)[0]
    return bare.rsplit("::", 1)[-1].strip() or name


LIBRARIES = {  # by the outermost namespace of their kernels
    "aiter": "aiter", "bitsandbytes": "bitsandbytes", "causal_conv1d": "causal-conv1d", "ck": "composable_kernel",
    "ck_tile": "composable_kernel", "deep_ep": "DeepEP", "deep_gemm": "DeepGEMM", "fbgemm_gpu": "FBGEMM",
    "flashinfer": "FlashInfer", "marlin": "Marlin", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM",
    "transformer_engine": "Transformer Engine", "vllm": "vLLM",
}  # fmt: skip
_DECODERS = [  # the first that fits; Inductor names what it fused, which may be anything below
    (re.compile(r"^triton_(?P<kind>poi|red|per|tem|for|mm)_(?:fused_)?(?P<ops>\w*?)_?\d*$"), _inductor),
    (re.compile(r"^(?:Memcpy|Memset|CopyDeviceToDevice|CopyHostTo|CopyDeviceTo|FillBuffer)", re.IGNORECASE), _memory),
    (
        re.compile(
            r"^nvjet_(?:(?P<arch>sm\d+)_)?(?P<types>[a-z]+)_(?P<tile>\d+x\d+)_\d+x(?P<stages>\d+)_\d+x\d+_(?P<tail>\w+)"
        ),
        _nvjet,
    ),
    (re.compile(r"flash_(?:fwd|bwd)|flash::|FlashAttn"), _flash),
    (re.compile(r"fmha_cutlass(?P<way>[FB])_(?P<dtype>[a-z]+\d+)_aligned_(?P<tile>\d+x\d+)\w*?_(?P<arch>sm\d+)"), _efficient),
    (re.compile(r"cudnn|\bwgrad_alg0_engine<"), _cudnn),
    (re.compile(r"(?P<arch>sm\d+)_xmma_(?P<kind>\w+?)_(?P<dtype>bf16|f16|f32|tf32|s8)"), _xmma),
    (re.compile(r"cutlass_?(?P<arch>\d{2,3})_(?P<rest>\w+)"), _cutlass),
    (
        re.compile(
            r"(?:^|\W)(?P<arch>volta|turing|ampere|hopper|maxwell|pascal)_(?:(?P<dtype>bf16|fp16|fp32|tf32)_)?"
            r"(?P<gemm>[a-z]*\d*gemm)(?P<rest>\w*)"
        ),
        _cublas,
    ),
    (re.compile(r"nccl\w*?Kernel_(?P<what>[A-Za-z]+)"), _nccl),
    (re.compile(r"^Cijk_"), _tensile),
    (re.compile(r"cublas|splitKreduce|gemv"), _other_cublas),
    (re.compile(rf"^(?:void )?(?P<library>{'|'.join(sorted(LIBRARIES, key=len, reverse=True))})::"), _library),
    (re.compile(r"at::native|at_cuda_detail|softmax_warp|cunn_SoftMax"), _aten),
]  # fmt: skip
