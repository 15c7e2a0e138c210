// The shapes of results of windows, losses, distances and searches without data. See meta_kernels.cc.

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "env/reference/meta_kernels.h"

namespace kevin {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

int64_t Of(IntArrayRef list, size_t i) { return list.size() == 1 ? list[0] : list[i]; }

Tensor Im2Col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, "im2col takes 3 or 4 dimensions");
  int64_t positions = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = self.size(static_cast<int64_t>(i) - 2);
    const int64_t room = size + 2 * Of(padding, i) - Of(dilation, i) * (Of(kernel, i) - 1) - 1;
    TORCH_CHECK(room >= 0, "the window of im2col is larger than its input");
    positions *= room / Of(stride, i) + 1;
  }
  std::vector<int64_t> shape(self.sizes().begin(), self.sizes().end() - 3);
  shape.push_back(self.size(-3) * Of(kernel, 0) * Of(kernel, 1));
  shape.push_back(positions);
  return at::empty(shape, self.options());
}

Tensor Col2Im(const Tensor& self, IntArrayRef output, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  TORCH_CHECK(self.dim() == 2 || self.dim() == 3, "col2im takes 2 or 3 dimensions");
  const int64_t taps = Of(kernel, 0) * Of(kernel, 1);
  TORCH_CHECK(self.size(-2) % taps == 0, "the columns of col2im are no multiple of its window");
  int64_t positions = 1;
  for (size_t i = 0; i < 2; ++i) {
    positions *=
        (Of(output, i) + 2 * Of(padding, i) - Of(dilation, i) * (Of(kernel, i) - 1) - 1) / Of(stride, i) + 1;
  }
  TORCH_CHECK(self.size(-1) == positions, "col2im needs ", positions, " columns, not ", self.size(-1));
  std::vector<int64_t> shape(self.sizes().begin(), self.sizes().end() - 2);
  shape.insert(shape.end(), {self.size(-2) / taps, Of(output, 0), Of(output, 1)});
  return at::empty(shape, self.options());
}

Tensor MaxUnpool(const Tensor& self, IntArrayRef output) {
  std::vector<int64_t> shape(self.sizes().begin(), self.sizes().end() - static_cast<long>(output.size()));
  shape.insert(shape.end(), output.begin(), output.end());
  return at::empty(shape, self.options());
}

// [N, C, ...] at the places of `grid` [N, ..., 2 or 3].
Tensor GridSampler(const Tensor& self, const Tensor& grid, int64_t, int64_t, bool) {
  TORCH_CHECK(grid.dim() == self.dim() && grid.size(-1) == self.dim() - 2, "the grid has another rank");
  std::vector<int64_t> shape = {self.size(0), self.size(1)};
  shape.insert(shape.end(), grid.sizes().begin() + 1, grid.sizes().end() - 1);
  return at::empty(shape, self.options());
}

std::tuple<Tensor, Tensor> NllLoss2d(const Tensor& self, const Tensor& target, const OptionalTensor&,
                                     int64_t reduction, int64_t) {
  TORCH_CHECK(self.dim() == 4 && target.dim() == 3, "nll_loss2d takes 4 dimensions and 3 of labels");
  const bool each = reduction == at::Reduction::None;
  return {at::empty(each ? target.sizes() : IntArrayRef(), self.options()), at::empty({}, self.options())};
}

Tensor MultiMargin(const Tensor& self, const Tensor& target, const at::Scalar&, const at::Scalar&,
                   const OptionalTensor&, int64_t reduction) {
  return at::empty(reduction == at::Reduction::None ? target.sizes() : IntArrayRef(), self.options());
}

Tensor CDist(const Tensor& a, const Tensor& b, double, std::optional<int64_t>) {
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1), "cdist of vectors of other lengths");
  std::vector<int64_t> shape =
      at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-2));
  return at::empty(shape, a.options());
}

Tensor AddBmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar&, const at::Scalar&) {
  TORCH_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(2) == b.size(1), "addbmm of matrices of other sizes");
  return at::empty({a.size(1), b.size(2)}, self.options());
}

Tensor Places(const Tensor& like, bool in_32_bits) {
  return at::empty(like.sizes(), like.options().dtype(in_32_bits ? at::kInt : at::kLong));
}

// Where there are several results, the first one's values do not matter.
std::tuple<Tensor, Tensor> AlongDim(const Tensor& self, int64_t dim, bool keepdim) {
  std::vector<int64_t> shape = self.sizes().vec();
  if (!shape.empty()) {
    const auto at_dim = static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()));
    shape[at_dim] = 1;
    if (!keepdim) shape.erase(shape.begin() + static_cast<long>(at_dim));
  }
  return {at::empty(shape, self.options()), at::empty(shape, self.options().dtype(at::kLong))};
}

// A row of the weight's size for each bag; the other results are for the backward pass.
std::tuple<Tensor, Tensor, Tensor, Tensor> EmbeddingBag(const Tensor& weight, const Tensor& indices,
                                                        const Tensor& offsets, bool, int64_t, bool,
                                                        const OptionalTensor&, bool has_end, int64_t) {
  TORCH_CHECK(weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1, "embedding_bag of other ranks");
  const int64_t bags = offsets.size(0) - (has_end ? 1 : 0);
  const auto places = [&] { return at::empty({bags}, indices.options()); };
  return {at::empty({bags, weight.size(1)}, weight.options()), places(), places(), places()};
}

Tensor Covariance(const Tensor& self) {
  const int64_t rows = self.dim() < 2 ? 1 : self.size(0);
  return at::empty(self.dim() < 2 ? std::vector<int64_t>() : std::vector<int64_t>{rows, rows},
                   self.options());
}

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_embedding_bag", EmbeddingBag);
  m.impl("_embedding_bag_forward_only", EmbeddingBag);
  m.impl("cov", [](const Tensor& self, int64_t, const OptionalTensor&, const OptionalTensor&) {
    return Covariance(self);
  });
  m.impl("corrcoef", Covariance);
  m.impl("im2col", Im2Col);
  m.impl("col2im", Col2Im);
  m.impl("max_unpool2d",
         [](const Tensor& self, const Tensor&, IntArrayRef output) { return MaxUnpool(self, output); });
  m.impl("max_unpool3d", [](const Tensor& self, const Tensor&, IntArrayRef output, IntArrayRef, IntArrayRef) {
    return MaxUnpool(self, output);
  });
  m.impl("grid_sampler_2d", [](const Tensor& self, const Tensor& grid, int64_t mode, int64_t padding,
                               bool aligned) { return GridSampler(self, grid, mode, padding, aligned); });
  m.impl("grid_sampler_3d", [](const Tensor& self, const Tensor& grid, int64_t mode, int64_t padding,
                               bool aligned) { return GridSampler(self, grid, mode, padding, aligned); });
  m.impl("nll_loss2d_forward", NllLoss2d);
  m.impl("multi_margin_loss", MultiMargin);
  m.impl("log_sigmoid_forward",
         [](const Tensor& self) { return std::tuple(at::empty_like(self), at::empty({0}, self.options())); });
  m.impl("_cdist_forward", CDist);
  m.impl("addbmm", AddBmm);
  m.impl("bucketize.Tensor",
         [](const Tensor& self, const Tensor&, bool in_32_bits, bool) { return Places(self, in_32_bits); });
  m.impl("searchsorted.Tensor",
         [](const Tensor&, const Tensor& self, bool in_32_bits, bool, std::optional<c10::string_view>,
            const OptionalTensor&) { return Places(self, in_32_bits); });
  m.impl("_weight_norm_interface", [](const Tensor& v, const Tensor& g, int64_t) {
    return std::tuple(at::empty_like(v), at::empty_like(g));
  });
  m.impl("_cummax_helper", [](const Tensor&, Tensor&, Tensor&, int64_t) {});
  m.impl("_cummin_helper", [](const Tensor&, Tensor&, Tensor&, int64_t) {});
  m.impl("native_dropout", [](const Tensor& self, double, std::optional<bool>) {
    return std::tuple(at::empty_like(self), at::empty_like(self, self.options().dtype(at::kBool)));
  });
  m.impl("median.dim", AlongDim);
  m.impl("nanmedian.dim", AlongDim);
  m.impl("mode", AlongDim);
  m.impl("kthvalue",
         [](const Tensor& self, int64_t, int64_t dim, bool keepdim) { return AlongDim(self, dim, keepdim); });
}

}  // namespace

void LinkMetaShapes() {}

}  // namespace kevin
