#include "env/problem/reference_operators.h"

#include <sstream>

namespace kevin {
namespace {

// Of ATen: pure functions of tensors and numbers, and what lists, dictionaries and texts need. None of them
// takes a path, prints, or changes a setting of the process; none is an internal form that leaves checks of
// its arguments to its caller. With a trailing underscore (relu_) each also stands for its form in place.
constexpr const char* kAten =
    "Bool Complex ComplexImplicit Float FloatImplicit Int IntImplicit ScalarImplicit __and__ __contains__ "
    "__derive_index __getitem__ __iand__ __interpolate __ior__ __is__ __isnot__ __ixor__ __lshift__ __not__ "
    "__or__ __range_length __round_to_zero_floordiv __rshift__ __upsample __upsample_bilinear "
    "__upsample_nearest __xor__ _adaptive_avg_pool2d _adaptive_avg_pool3d _fused_rms_norm _infer_size "
    "_log_softmax _pad_circular _pad_enum _safe_softmax _scaled_dot_product_attention_math "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu _set_item "
    "_shape_as_tensor _softmax _to_copy _trilinear _unsafe_view _unwrap_optional _upsample_bicubic2d_aa "
    "_upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "_weight_norm abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv addcmul addmm addmv addr "
    "adjoint affine_grid_generator alias alias_copy all allclose alpha_dropout amax amin aminmax angle any "
    "append arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere "
    "as_strided as_strided_copy as_tensor asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d "
    "avg_pool1d avg_pool2d avg_pool3d baddbmm bartlett_window batch_norm bernoulli bilinear bin "
    "binary_cross_entropy binary_cross_entropy_with_logits bincount bitwise_and bitwise_left_shift "
    "bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm broadcast_tensors "
    "broadcast_to bucketize can_cast cartesian_prod cat cdist ceil celu chain_matmul channel_shuffle cholesky "
    "cholesky_inverse cholesky_solve chr chunk clamp clamp_max clamp_min clear clip clone col2im column_stack "
    "combinations complex concat concatenate conj conj_physical constant_pad_nd contiguous conv1d conv2d "
    "conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d copy copysign corrcoef cos cosh "
    "cosine_embedding_loss cosine_similarity count count_nonzero cov cross cross_entropy_loss ctc_loss cummax "
    "cummin cumprod cumsum cumulative_trapezoid deg2rad degrees det detach detach_copy diag diag_embed "
    "diagflat diagonal diagonal_copy diagonal_scatter dict diff digamma dim dist div divide divmod dot "
    "dropout dsplit dstack einsum element_size elu embedding embedding_bag empty empty_like empty_strided "
    "endswith eq equal erf erfc erfinv exp exp2 expand expand_as expand_copy expm1 exponential extend eye "
    "fabs factorial feature_alpha_dropout feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift "
    "fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn "
    "fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn fill find fix flatten flip "
    "fliplr flipud float_power floor floor_divide floordiv fmax fmin fmod format frac fractional_max_pool2d "
    "fractional_max_pool3d frexp frobenius_norm full full_like gamma gather gcd ge gelu ger get glu greater "
    "greater_equal grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru gru_cell gt hamming_window "
    "hann_window hardshrink hardsigmoid hardswish hardtanh heaviside hex hinge_embedding_loss histc histogram "
    "histogramdd hsplit hstack huber_loss hypot i0 igamma igammac im2col imag index index_add index_copy "
    "index_fill index_put index_reduce index_select inner insert instance_norm inverse is_complex "
    "is_contiguous is_floating_point is_nonzero is_same_size is_signed isclose isfinite isin isinf isnan "
    "isneginf isposinf isreal istft item items join kaiser_window keys kl_div kron kthvalue l1_loss "
    "layer_norm lcm ldexp le leaky_relu len lerp less less_equal lgamma lift_fresh lift_fresh_copy "
    "linalg_cholesky linalg_cond linalg_cross linalg_det linalg_diagonal linalg_eig linalg_eigh "
    "linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv linalg_ldl_factor linalg_ldl_solve "
    "linalg_lstsq linalg_lu linalg_lu_factor linalg_lu_solve linalg_matmul linalg_matrix_exp "
    "linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv "
    "linalg_qr linalg_slogdet linalg_solve linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv "
    "linalg_tensorsolve linalg_vander linalg_vecdot linalg_vector_norm linear linspace list log log10 log1p "
    "log2 log_sigmoid log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or "
    "logical_xor logit logspace logsumexp lower lstm lstm_cell lt lu_solve lu_unpack mH mT "
    "margin_ranking_loss masked_fill masked_scatter masked_select mathremainder matmul matrix_H matrix_exp "
    "matrix_power max max_pool1d max_pool2d max_pool3d max_unpool2d max_unpool3d maximum mean median meshgrid "
    "min minimum mish mm mode modf moveaxis movedim mse_loss msort mul multi_margin_loss "
    "multilabel_margin_loss multinomial multiply mv mvlgamma nanmean nanmedian nansum narrow narrow_copy "
    "native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm ne neg "
    "negative new_empty new_empty_strided new_full new_ones new_zeros nextafter nll_loss nll_loss2d "
    "nll_loss_nd nonzero nonzero_numpy nonzero_static norm norm_except_dim normal not_equal nuclear_norm "
    "numel numpy_T oct one_hot ones ones_like ord outer pad pad_sequence pairwise_distance pdist permute "
    "permute_copy pixel_shuffle pixel_unshuffle poisson polar polygamma pop positive pow prelu prod "
    "promote_types qr rad2deg radians rand rand_like randint randint_like randn randn_like randperm range "
    "ravel real reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder remove "
    "renorm repeat repeat_interleave replace replication_pad1d replication_pad2d replication_pad3d reshape "
    "reshape_as resolve_conj resolve_neg result_type reverse rms_norm rnn_relu rnn_tanh rnn_tanh_cell roll "
    "rot90 round row_stack rrelu rsqrt rsub scalar_tensor scaled_dot_product_attention scatter scatter_add "
    "scatter_reduce searchsorted select select_copy select_scatter selu setdefault sgn sigmoid sign signbit "
    "silu sin sinc sinh size slice slice_copy slice_scatter slogdet smooth_l1_loss soft_margin_loss softmax "
    "softplus softshrink sort sorted special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 "
    "special_bessel_y1 special_chebyshev_polynomial_t special_chebyshev_polynomial_u "
    "special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_digamma special_entr special_erf "
    "special_erfc special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammainc "
    "special_gammaincc special_gammaln special_hermite_polynomial_h special_hermite_polynomial_he special_i0 "
    "special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p "
    "special_log1p special_log_ndtr special_log_softmax special_logit special_logsumexp "
    "special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 "
    "special_modified_bessel_k1 special_multigammaln special_ndtr special_ndtri special_polygamma special_psi "
    "special_round special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
    "special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u "
    "special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_sinc "
    "special_softmax special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta split split_copy "
    "split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze_copy stack startswith std std_mean "
    "stft storage_offset str stride strip sub subtract sum svd swapaxes swapdims sym_numel sym_size "
    "sym_stride t t_copy take take_along_dim tan tanh tensor tensor_split tensordot threshold tile to topk "
    "trace transpose transpose_copy trapezoid trapz triangular_solve tril triplet_margin_loss triu "
    "true_divide trunc type_as unbind unbind_copy unflatten unfold unfold_copy uniform unique_consecutive "
    "unique_dim unique_dim_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze "
    "unsqueeze_copy update upper upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d vander var var_mean vdot view view_as "
    "view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy vsplit vstack where xlogy "
    "zero zeros zeros_like ";

// Of the language.
constexpr const char* kPrim =
    "Constant If Loop ListConstruct ListUnpack TupleConstruct TupleUnpack TupleIndex TupleSlice DictConstruct "
    "CallFunction RaiseException Uninitialized unchecked_cast unchecked_unwrap_optional isinstance "
    "NumToTensor dtype device layout is_cuda itemsize min max abs range rangelist tolist StringIndex ";

std::set<std::string, std::less<>> Words(const char* text) {
  std::istringstream in(text);
  std::set<std::string, std::less<>> words;
  for (std::string word; in >> word;) words.insert(word);
  return words;
}

}  // namespace

const std::set<std::string, std::less<>>& ReferenceOperators() {
  static const std::set<std::string, std::less<>> kNames = Words(kAten);
  return kNames;
}

bool IsReferenceOperator(std::string_view kind) {
  static const std::set<std::string, std::less<>> kLanguage = Words(kPrim);
  const size_t colons = kind.find("::");
  if (colons == std::string_view::npos) return false;
  const std::string_view space = kind.substr(0, colons);
  std::string_view name = kind.substr(colons + 2);
  if (space == "prim") return kLanguage.count(name) > 0;
  if (space != "aten") return false;
  if (ReferenceOperators().count(name)) return true;
  if (name.size() < 2 || !name.ends_with("_")) return false;
  name.remove_suffix(1);
  return ReferenceOperators().count(name) > 0;
}

std::string UnreadableCharacter(std::string_view text) {
  for (const char one : text) {
    const auto c = static_cast<unsigned char>(one);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return "character " + std::to_string(c);
  }
  return "";
}

}  // namespace kevin
