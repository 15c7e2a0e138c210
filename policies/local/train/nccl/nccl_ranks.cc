// The plug-in kevin-nccl.so: Ranks over NCCL. A separate library because it needs
// libtorch_cuda.so, which no program is linked to.

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstdlib>
#include <functional>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "env/error.h"
#include "policies/local/train/meet_in_store.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {
namespace {

class NcclRanks : public Ranks {
 public:
  NcclRanks(const Rendezvous& rendezvous, double seconds, int device)
      : rank_(rendezvous.rank),
        size_(rendezvous.size),
        device_(at::kCUDA, static_cast<c10::DeviceIndex>(device)) {
    // Makes a wait that takes too long throw, instead of ending the process. Read when the group is made.
    if (rendezvous.returns_early) {
      setenv("TORCH_NCCL_BLOCKING_WAIT", "0", 1);
    } else {
      setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 0);
    }
    const c10::cuda::CUDAGuard guard(device_);
    const std::chrono::milliseconds limit(static_cast<int64_t>(seconds * 1000));
    const auto own = MeetInStore(rendezvous, "kevin-nccl-", limit);
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = limit;
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(own, rank_, size_, nccl);
  }

  int Rank() const override { return rank_; }
  int Size() const override { return size_; }
  void Sum(at::Tensor* values) override { Reduce(values, c10d::ReduceOp::SUM); }
  void Largest(at::Tensor* values) override { Reduce(values, c10d::ReduceOp::MAX); }

  void Gather(const at::Tensor& own, at::Tensor* all) override {
    const c10::cuda::CUDAGuard guard(device_);
    at::Tensor mine = own.to(device_).contiguous();
    at::Tensor gathered = all->is_cuda() && all->is_contiguous() ? *all : at::empty_like(*all, device_);
    group_->_allgather_base(gathered, mine)->wait();
    if (!gathered.is_same(*all)) all->copy_(gathered);
  }

  std::function<void()> StartGather(const at::Tensor& own, at::Tensor all) override {
    const c10::cuda::CUDAGuard guard(device_);
    at::Tensor mine = own, whole = all;
    return Waiting(group_->_allgather_base(whole, mine), {mine, whole});
  }

  std::function<void()> StartSumShares(const at::Tensor& all, at::Tensor own) override {
    const c10::cuda::CUDAGuard guard(device_);
    at::Tensor from = all, part = own;
    return Waiting(group_->_reduce_scatter_base(part, from), {from, part});
  }

  void Wait() override {
    at::Tensor nothing = at::zeros({1}, at::TensorOptions(at::kFloat).device(device_));
    Sum(&nothing);
    nothing.item();
  }

 private:
  // NCCL works on a stream of its own, behind what the current stream had to do at the start; whoever waits has what follows
  // wait for it. The tensors live until then.
  std::function<void()> Waiting(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> tensors) const {
    return [this, work = std::move(work), tensors = std::move(tensors)] {
      const c10::cuda::CUDAGuard waiting(device_);
      work->wait();
    };
  }

  void Reduce(at::Tensor* values, c10d::ReduceOp::RedOpType operation) {
    const c10::cuda::CUDAGuard guard(device_);
    std::vector<at::Tensor> tensors = {values->to(device_)};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    group_->allreduce(tensors, options)->wait();
    if (!tensors[0].is_same(*values)) values->copy_(tensors[0]);
  }

  const int rank_, size_;
  const at::Device device_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace
}  // namespace kevin::local

extern "C" kevin::local::Ranks* KevinNcclRanks(const kevin::local::Rendezvous* rendezvous, double seconds,
                                               int device) {
  return new kevin::local::NcclRanks(*rendezvous, seconds, device);
}
