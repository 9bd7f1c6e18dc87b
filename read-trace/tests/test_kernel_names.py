"""Kernel names, as traces of real GPUs hold them, and what each says. H200: recorded here; the others are public."""

import re

import msgspec
import pytest
from trace_reader.model.slices import Kind
from trace_reader.names import kernel_names
from trace_reader.names.kernel_names import KERNELS, Entry, KernelName, decode_name, split_ops
from trace_reader.names.work_kinds import WORK_KINDS, work_kind

CASES = [
    (
        "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT",  # H200
        dict(label="nvjet GEMM 192x128", library="cuBLAS nvjet", architecture="sm90", dtype="bf16", tile="192x128",
             stages=5, layout="TNT", epilogue="bz"),
    ),
    (
        "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT",  # H200
        dict(label="nvjet GEMM 64x8", library="cuBLAS nvjet", architecture="sm90", dtype="bf16", tile="64x8", stages=16,
             layout="TNT", epilogue="bz_bias"),
    ),
    (
        "nvjet_hsh_128x128_64x6_2x1_v_bz_TNT",
        dict(label="nvjet GEMM 128x128", library="cuBLAS nvjet", dtype="fp16", tile="128x128", stages=6, layout="TNT",
             epilogue="bz"),
    ),
    (
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
        dict(label="s16816gemm 128x64", library="cuBLAS", architecture="sm80", dtype="bf16", tile="128x64", stages=3,
             layout="tn", unit="tensor cores"),
    ),
    (
        "ampere_sgemm_128x64_tn",
        dict(label="sgemm 128x64", library="cuBLAS", architecture="sm80", dtype="fp32", tile="128x64", layout="tn",
             unit="CUDA cores"),
    ),
    (
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        dict(label="s884gemm 128x128", library="cuBLAS", architecture="sm70", dtype="fp16", tile="128x128", layout="nn",
             unit="tensor cores"),
    ),
    (
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(cutlass_80_Params)",
        dict(label="cutlass GEMM 16x16", library="CUTLASS", architecture="sm80", dtype="bf16", tile="16x16", stages=2,
             layout="tn", unit="tensor cores"),
    ),
    (
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm::Params)",
        dict(label="cutlass GEMM 256x128", library="CUTLASS", architecture="sm80", dtype="fp32", tile="256x128", stages=4,
             layout="nn", unit="CUDA cores"),
    ),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4_execute_kernel"
        "__5x_cublas",  # H200
        dict(label="xmma gemm 256x128x8", library="xmma", architecture="sm80", dtype="fp32", tile="256x128x8", stages=3,
             layout="nn", unit="CUDA cores"),
    ),
    (
        "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
        dict(label="xmma gemm 32x32x64", library="xmma", architecture="sm80", dtype="tf32", tile="32x32x64", stages=3,
             layout="nn", unit="tensor cores"),
    ),
    (
        "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_execute"
        "_segment_k_off_kernel__5x_cudnn",  # H200: a convolution
        dict(label="cuDNN", library="cuDNN", architecture="sm90", dtype="tf32", unit="tensor cores"),
    ),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
        "__5x_cublas",
        dict(label="xmma gemm 128x128x64", library="xmma", architecture="sm90", dtype="bf16", tile="128x128x64",
             layout="tn"),
    ),
    (
        "triton_poi_fused__unsafe_view_gelu_mul_0",  # H200
        dict(label="triton gelu+mul", library="Triton (Inductor)", inductor_kind="pointwise",
             merged_ops=("_unsafe_view", "gelu", "mul")),
    ),
    (
        "triton_poi_fused__scaled_dot_product_cudnn_attention_index_copy_split_with_sizes_mul_5",  # H200: of Inductor's make
        dict(label="triton _scaled_dot_product_cudnn_attention+index_copy+split_with_sizes+mul", library="Triton (Inductor)",
             inductor_kind="pointwise",
             merged_ops=("_scaled_dot_product_cudnn_attention", "index_copy", "split_with_sizes", "mul")),
    ),
    (
        "triton_red_fused_native_layer_norm_3",
        dict(label="triton native_layer_norm", library="Triton (Inductor)", inductor_kind="reduction",
             merged_ops=("native_layer_norm",)),
    ),
    (
        "triton_per_fused__softmax_masked_fill_mul_1",
        dict(label="triton _softmax+masked_fill+mul", library="Triton (Inductor)", inductor_kind="persistent reduction",
             merged_ops=("_softmax", "masked_fill", "mul")),
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, "
        "3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",  # H200
        dict(label="add", library="ATen elementwise", dtype="bf16"),
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
        "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)",  # H200
        dict(label="mul", library="ATen elementwise", dtype="bf16"),
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)"
        "#1}, std::array<char*, 2ul> >(int)",  # H200
        dict(label="gelu", library="ATen elementwise", dtype="bf16"),
    ),
    (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)"
        "::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)::{lambda()#1}",
        dict(label="masked_fill", library="ATen elementwise"),
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
        "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned "
        "int, float, 4> >(at::native::ReduceOp<float>)",
        dict(label="reduce sum", library="ATen reduce", dtype="fp32"),
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, "
        "at::native::Copy<c10::BFloat16, c10::BFloat16> >(at::native::(anonymous namespace)::TensorListMetadata<2>)",  # H200
        dict(label="foreach copy", library="multi-tensor", dtype="bf16"),
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(int)",
        dict(label="softmax", library="softmax", dtype="bf16"),
    ),
    (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, at::native::(anonymous "
        "namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)",
        dict(label="softmax", library="softmax"),
    ),
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
        "cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false>"
        "(pytorch_flash::Flash_fwd_params)",
        dict(label="flash attention fwd", library="FlashAttention", dtype="bf16", tile="128x128"),
    ),
    (
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
        dict(label="efficient attention fwd 64x64", library="memory-efficient attention", architecture="sm80",
             dtype="bf16", tile="64x64"),
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
        dict(label="cuDNN attention 64x128x128", library="cuDNN attention", architecture="sm90", tile="64x128x128",
             unit="tensor cores", knob="7"),
    ),
    (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        dict(label="NCCL AllReduce", library="NCCL/RCCL", dtype="bf16"),
    ),
    (
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0",
        dict(label="Tensile GEMM 128x128x32", library="ROCm Tensile", dtype="bf16", tile="128x128x32",
             unit="tensor cores"),
    ),
    (
        "void splitKreduce_kernel<32, 16, int, c10::BFloat16, float>(int)",
        dict(label="split-k reduce", library="cuBLAS", dtype="bf16"),
    ),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false>(int)",
        dict(label="gemv", library="cuBLAS"),
    ),
    ("Memcpy DtoD (Device -> Device)", dict(label="Memcpy DtoD", library="memcpy")),
    ("Memset (Device)", dict(label="Memset", library="memset")),
    ("_geglu_tanh_forward_kernel", dict(label="_geglu_tanh_forward_kernel", library="unknown")),
    ("void my::thing<int>(float)", dict(label="thing", library="unknown")),
    ("", dict(label="", library="unknown")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "says"), CASES, ids=[name[:50] for name, _ in CASES])
def test_a_name_says_this_and_no_more(name, says):
    decoded = msgspec.structs.asdict(decode_name(name))
    assert decoded.pop("work") in (None, *WORK_KINDS)
    assert {key: value for key, value in decoded.items() if value or key in ("label", "library")} == says


def test_merged_ops_with_underscores_of_their_own():
    assert split_ops("_to_copy_add_native_layer_norm_view") == ("_to_copy", "add", "native_layer_norm", "view")
    assert split_ops("") == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)", "GEMM"),
        ("_ZN5aiter41fmha_fwd_hd128_bf16_causalE", "attention"),
        ("void ck_tile::kentry<ck_tile::FmhaFwdKernel<int> >(int)", "attention"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<int>(int)", "attention"),
        ("deep_gemm::sm90_fp8_gemm_1d2d_impl<4096u>(int)", "GEMM"),
        ("void marlin_moe_wna16::Marlin<long>(int)", "GEMM"),
        ("fused_moe_kernel", "GEMM"),
        ("void vllm::reshape_and_cache_flash_kernel<int>(int)", "copy"),
        ("void vllm::rotary_embedding_kernel<int>(int)", "pointwise"),
        ("void vllm::act_and_mul_kernel<int>(int)", "pointwise"),
        ("void vllm::moe::topkGatingSoftmax<float>(int)", "softmax, norm, reduction"),
        ("void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float>(int)", "pointwise"),
        ("void multimem_all_reduce_kernel<int, 16>(int)", "communication"),
        ("void vllm::cross_device_reduce_1stage<__half, 4>(int)", "communication"),
        ("void two_shot_all_reduce_kernel<int>(int)", "communication"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<int>(int)", "communication"),
        ("void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_twoshot_sync<int>(int)", "communication"),
        ("void deep_ep::intranode::dispatch<8>(int)", "communication"),
        ("void tensorrt_llm::kernels::moeA2ADispatchKernel<int>(int)", "communication"),
        ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>(int)", "softmax, norm, reduction"),
        ("void flashinfer::activation::act_and_mul_kernel<int>(int)", "pointwise"),
        ("void flashinfer::BatchQKApplyRotaryPosIdsKernel<int>(int)", "pointwise"),
        ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512_sm100f", "GEMM"),
        ("void at::native::(anonymous namespace)::upsample_bilinear2d_out_frame<float>(int)", "other"),
        ("my_property_kernel", "other"),
        ("my_kernel", "other"),
    ],
)
def test_kernels_of_libraries_have_a_kind(name, kind):
    assert work_kind(name, Kind.KERNEL, None, "cudaLaunchKernel") == kind


def test_the_copies_of_hip_are_copies():
    assert [decode_name(name).library for name in ("CopyDeviceToDevice", "CopyHostToDevice", "FillBuffer")] == ["memcpy"] * 2 + [
        "memset"
    ]


@pytest.mark.parametrize(
    ("name", "label", "library"),
    [
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<int>(int)", "BatchDecodeWithPagedKVCacheKernel", "FlashInfer"),
        ("void vllm::moe::topkGatingSoftmax<float>(int)", "topkGatingSoftmax", "vLLM"),
        ("deep_gemm::sm90_fp8_gemm_1d2d_impl<4096u>(int)", "sm90_fp8_gemm_1d2d_impl", "DeepGEMM"),
        ("void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<int>>(int)", "kentry", "composable_kernel"),
        ("void ck::kernel_gemm_xdl_cshuffle_v3<int>(int)", "kernel_gemm_xdl_cshuffle_v3", "composable_kernel"),
        ("void tensorrt_llm::kernels::fusedQKNormRopeKernel<int>(int)", "fusedQKNormRopeKernel", "TensorRT-LLM"),
        ("void mine::vllm::kernel<int>(int)", "kernel", "unknown"),
        ("vllm_kernel", "vllm_kernel", "unknown"),
    ],
)
def test_a_kernel_of_a_library_is_of_its_library(name, label, library):
    decoded = decode_name(name)
    assert (decoded.label, decoded.library) == (label, library)


def test_a_pattern_of_the_table_has_its_kind_of_work(monkeypatch):
    """A line more is enough: a library that nobody knew is counted among the matrix products."""
    name = "void newlib::mystery_kernel<float>(int)"
    assert work_kind(name, Kind.KERNEL, None, None) == "other"
    decode = lambda name, match: KernelName("mystery", "newlib")  # noqa: E731
    monkeypatch.setattr(kernel_names, "KERNELS", (Entry(re.compile("^void newlib::"), decode, "GEMM"), *KERNELS))
    decode_name.cache_clear()
    assert work_kind(name, Kind.KERNEL, None, None) == "GEMM" and decode_name(name).is_gemm
    monkeypatch.undo()
    decode_name.cache_clear()
