#include "env/reference/reference.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/profiling_graph_executor_impl.h>
#include <torch/jit.h>
#include <torch/script.h>
#include <torch/version.h>

#include <algorithm>
#include <optional>

#include "env/error.h"
#include "env/reference/compile_reference.h"
#include "env/reference/contractions.h"

namespace kevin {
namespace {

std::vector<at::Tensor> Unpack(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  std::vector<at::Tensor> tensors;
  if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) tensors.push_back(element.toTensor());
  }
  return tensors;
}

DoubleTensor AsDoubles(const at::Tensor& tensor) {
  const auto values = std::make_shared<at::Tensor>(tensor.to(at::kDouble).contiguous());
  return {std::shared_ptr<const double>(values, values->data_ptr<double>()),
          static_cast<size_t>(values->numel())};
}

std::string ShapeText(at::IntArrayRef shape) {
  std::string text = "(";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + ")";
}

// While this exists, torch computes with its own kernels only.
class PlainAlgorithms {
 public:
  PlainAlgorithms() {
    Set({false, false, false, false, false, false});
    at::set_num_threads(1);
  }
  ~PlainAlgorithms() {
    Set(before_);
    at::set_num_threads(threads_);
  }
  PlainAlgorithms(const PlainAlgorithms&) = delete;
  PlainAlgorithms& operator=(const PlainAlgorithms&) = delete;

 private:
  struct Libraries {
    bool cudnn, onednn, nnpack, flash, memory_efficient, cudnn_attention;
  };
  static Libraries Now() {
    const at::Context& context = at::globalContext();
    return {context.userEnabledCuDNN(),           context.userEnabledMkldnn(),
            context.userEnabledNNPACK(),          context.userEnabledFlashSDP(),
            context.userEnabledMemEfficientSDP(), context.userEnabledCuDNNSDP()};
  }
  static void Set(const Libraries& libraries) {
    at::Context& context = at::globalContext();
    context.setUserEnabledCuDNN(libraries.cudnn);
    context.setUserEnabledMkldnn(libraries.onednn);
    context.setUserEnabledNNPACK(libraries.nnpack);
    context.setSDPUseFlash(libraries.flash);
    context.setSDPUseMemEfficient(libraries.memory_efficient);
    context.setSDPUseCuDNN(libraries.cudnn_attention);
  }

  const Libraries before_ = Now();
  const int threads_ = at::get_num_threads();
};

// One stream for all References of the process, since the allocator keeps its free blocks by stream. Not the default
// stream, which waits for all others.
c10::Stream StreamOf(at::Device device) {
  static const c10::Stream stream = c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(device);
  return stream;
}

std::string FirstLines(const std::string& text, size_t limit) {
  return text.size() <= limit ? text : text.substr(0, limit) + "...";
}

// The reason stands behind a trace of the text.
std::string LastLines(const std::string& text, size_t limit) {
  return text.size() <= limit ? text : "..." + text.substr(text.size() - limit);
}

}  // namespace

struct Reference::Impl {
  Problem problem;
  ReferenceOptions options;
  at::Device device = at::kCPU;
  std::optional<c10::Stream> stream;  // on CUDA
  std::shared_ptr<torch::jit::CompilationUnit> unit;
  std::vector<std::vector<TensorView>> slot_views;
  std::vector<std::vector<c10::IValue>> slot_inputs;
  std::vector<std::vector<at::Tensor>> slot_tensors;  // the same inputs, one by one
  std::vector<c10::IValue> slot_outputs;
  std::vector<std::vector<at::Tensor>> contiguous;  // by slot: owns the copies of SlotOutputs

  c10::IValue Call(const char* name, std::vector<c10::IValue> inputs) {
    c10::InferenceMode inference;
    try {
      return unit->get_function(name)(std::move(inputs));
    } catch (const c10::Error& error) {
      Fail(name, error.what_without_backtrace());
    } catch (const std::exception& error) {  // of the interpreter, which wraps others
      Fail(name, error.what());
    }
  }

  [[noreturn]] void Fail(const char* name, const std::string& what) const {
    if (const size_t at = what.rfind("not implemented for '"); at != std::string::npos) {
      const size_t line = what.rfind('\n', at) + 1;  // npos + 1 is 0
      throw Error(ExitCode::kBadRequest,
                  problem.id + ": torch cannot compute it in this precision on this device: " +
                      what.substr(line, what.find('\n', at) - line),
                  "use another --precision or --device");
    }
    throw Error(ExitCode::kBadRequest, problem.id + ": `" + name + "` failed: " + LastLines(what, 2000),
                "check the reference text and the shapes in the problem file");
  }

  // The arguments of the reference's functions: all tensors, or the inputs and a Dict of the parameters.
  std::vector<c10::IValue> Arguments(const std::vector<at::Tensor>& tensors) const {
    std::vector<c10::IValue> arguments;
    c10::Dict<std::string, at::Tensor> params;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (problem.has_param_dict && problem.inputs[i].is_param) {
        params.insert(problem.inputs[i].name, tensors[i]);
      } else {
        arguments.emplace_back(tensors[i]);
      }
    }
    if (problem.has_param_dict) arguments.emplace_back(params);
    return arguments;
  }

  at::Tensor Wrap(const TensorView& view) const {
    return at::from_blob(view.data, view.shape, at::TensorOptions(TorchType(view.dtype)).device(device));
  }

  std::vector<at::Tensor> Wide(const std::vector<TensorView>& inputs) const {
    std::vector<at::Tensor> wide;
    for (const TensorView& view : inputs) {
      const at::Tensor tensor = Wrap(view);
      wide.push_back(tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor);
    }
    return wide;
  }

  // The values of input-outputs behind those that `forward` returned.
  void AddInOuts(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>* outputs) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (problem.inputs[i].is_inout) outputs->push_back(inputs[i]);
    }
  }

  // All results in fp64; the inputs stay as they are.
  std::vector<at::Tensor> WideResults(const std::vector<TensorView>& inputs) {
    const std::vector<at::Tensor> wide = Wide(inputs);
    std::vector<at::Tensor> outputs = Unpack(Call("forward", Arguments(wide)));
    AddInOuts(wide, &outputs);
    return outputs;
  }
};

void LoadTorchCuda(int device) {
  for (const char* library : {"libc10_cuda.so", "libtorch_cuda.so"}) {
    if (dlopen(library, RTLD_NOW | RTLD_GLOBAL)) continue;
    const char* why = dlerror();
    throw Error(
        ExitCode::kMachine, std::string("this torch cannot use a GPU: ") + (why ? why : library),
        "install torch 2.11 with CUDA (tools/setup.sh does on a machine with a GPU), or use --device cpu");
  }
  try {
    at::globalContext().lazyInitDevice(at::kCUDA);
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    guard.setDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  } catch (const c10::Error& error) {
    throw Error(ExitCode::kMachine,
                "torch cannot use this GPU: " + FirstLines(error.what_without_backtrace(), 1000),
                "run `kevin doctor`");
  }
}

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

static auto TorchStats(int device) {
  return at::getDeviceAllocator(at::kCUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
}

int64_t TorchCacheBytes(int device) {
  const auto stats = TorchStats(device);
  return stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
}

TorchBytes TakeTorchBytes(int device) {
  const auto allocated = TorchStats(device).allocated_bytes[kAll];
  at::getDeviceAllocator(at::kCUDA)->resetPeakStats(static_cast<c10::DeviceIndex>(device));
  return {allocated.current, allocated.peak};
}

TorchShortages CountTorchShortages(int device) {
  const auto stats = TorchStats(device);
  return {stats.num_alloc_retries, stats.num_ooms};
}

void ReleaseTorchCache() { at::getDeviceAllocator(at::kCUDA)->emptyCache(); }

Reference::Reference(const Problem& problem, const ReferenceOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->problem = problem;
  impl_->options = options;
  if (options.cuda_device >= 0) {
    impl_->device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.cuda_device));
    impl_->stream = StreamOf(impl_->device);
  }
  Activate();
  impl_->unit = CompiledReference(problem);
}

void Reference::Activate() {
  at::set_num_threads(impl_->options.threads);
  if (impl_->stream) {
    c10::impl::VirtualGuardImpl(at::kCUDA).exchangeStream(*impl_->stream);
    at::globalContext().setAllowTF32CuBLAS(impl_->options.tf32);
    at::globalContext().setAllowTF32CuDNN(impl_->options.tf32);
    // Products of 16-bit types are summed in float32, also between the parts of a split sum.
    at::globalContext().setAllowFP16ReductionCuBLAS(false);
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    at::globalContext().setAllowFP16AccumulationCuBLAS(false);
    at::globalContext().setAllowFP16BF16ReductionMathSDP(false);
  }
  // Eager: operator by operator, no fusion, no specialisation after the first calls.
  torch::jit::getProfilingMode() = false;
  torch::jit::setGraphExecutorOptimize(false);
}

Reference::~Reference() {
  const bool is_on_cuda = impl_ && impl_->device.is_cuda();
  impl_.reset();
  if (!is_on_cuda) return;
  try {
    ReleaseTorchCache();
  } catch (const c10::Error&) {  // the device has failed; its error is reported elsewhere
  }
}
Reference::Reference(Reference&&) noexcept = default;

void Reference::BindSlot(size_t slot, const std::vector<TensorView>& inputs) {
  impl_->slot_inputs.resize(std::max(impl_->slot_inputs.size(), slot + 1));
  impl_->slot_tensors.resize(impl_->slot_inputs.size());
  impl_->slot_views.resize(impl_->slot_inputs.size());
  impl_->slot_outputs.resize(impl_->slot_inputs.size());
  impl_->contiguous.resize(impl_->slot_inputs.size());
  std::vector<at::Tensor> tensors;
  for (const TensorView& view : inputs) tensors.push_back(impl_->Wrap(view));
  impl_->slot_inputs[slot] = impl_->Arguments(tensors);
  impl_->slot_tensors[slot] = std::move(tensors);
  impl_->slot_views[slot] = inputs;
}

void Reference::RunSlot(size_t slot) {
  impl_->slot_outputs[slot] = c10::IValue();
  impl_->contiguous[slot].clear();
  impl_->slot_outputs[slot] = impl_->Call("forward", impl_->slot_inputs[slot]);
}

void Reference::RunSlotOtherwise(size_t slot) {
  const PlainAlgorithms plain;
  RunSlot(slot);
}

size_t Reference::CountContractions(size_t slot) {
  const CoarseContractionScope counting(0, nullptr);
  impl_->WideResults(impl_->slot_views[slot]);
  return counting.count();
}

void Reference::RunSlotCoarsely(size_t slot, int dropped,
                                const std::function<bool(size_t number)>& is_coarse) {
  impl_->slot_outputs[slot] = c10::IValue();
  impl_->contiguous[slot].clear();
  std::vector<at::Tensor> wide;
  {
    const CoarseContractionScope coarse(dropped, is_coarse);
    wide = impl_->WideResults(impl_->slot_views[slot]);
  }
  const c10::InferenceMode inference;
  std::vector<c10::IValue> outputs;
  for (const at::Tensor& output : wide) {
    const DType dtype = impl_->problem.outputs.at(outputs.size()).dtype;
    outputs.emplace_back(output.is_floating_point() ? output.to(TorchType(dtype)) : output);
  }
  impl_->slot_outputs[slot] = c10::ivalue::Tuple::create(std::move(outputs));
}

std::vector<TensorView> Reference::SlotOutputs(size_t slot, const std::vector<ConcreteTensor>& expected) {
  std::vector<at::Tensor> outputs = Unpack(impl_->slot_outputs[slot]);
  const size_t own = OwnOutputs(impl_->problem);
  const bool are_bound = outputs.size() == own;  // RunSlotCoarsely gives all results
  if (are_bound) impl_->AddInOuts(impl_->slot_tensors[slot], &outputs);
  bool as_declared = outputs.size() == expected.size();
  std::vector<TensorView> views;
  for (size_t i = 0; as_declared && i < outputs.size(); ++i) {
    as_declared = outputs[i].sizes().vec() == expected[i].shape &&
                  outputs[i].scalar_type() == TorchType(expected[i].spec.dtype);
    if (as_declared && are_bound && i >= own) {
      views.push_back({outputs[i].data_ptr(), expected[i].spec.dtype, expected[i].shape});
      continue;
    }
    at::Tensor dense = outputs[i].contiguous();
    const bool is_view_of_input =
        std::any_of(impl_->slot_tensors[slot].begin(), impl_->slot_tensors[slot].end(),
                    [&](const at::Tensor& input) { return dense.is_alias_of(input); });
    if (dense.is_same(outputs[i]) && dense.storage_offset() == 0 && !is_view_of_input) {
      views.push_back({dense.data_ptr(), expected[i].spec.dtype, expected[i].shape});
    } else {
      dense = dense.clone();
      views.push_back({dense.data_ptr(), expected[i].spec.dtype, expected[i].shape});
      impl_->contiguous[slot].push_back(dense);
    }
  }
  if (!as_declared) {
    const std::string got = outputs.empty() ? "no tensor" : ShapeText(outputs[0].sizes());
    throw Error(ExitCode::kBadRequest,
                impl_->problem.id + ": the reference returns " + got + " of type " +
                    (outputs.empty() ? "?" : c10::toString(outputs[0].scalar_type())) +
                    ", which differs from [[outputs]]",
                "correct [[outputs]] or the reference");
  }
  return views;
}

void Reference::DropOutputs() {
  for (c10::IValue& output : impl_->slot_outputs) output = c10::IValue();
  for (std::vector<at::Tensor>& copies : impl_->contiguous) copies.clear();
}

std::vector<DoubleTensor> Reference::Truth(const std::vector<TensorView>& inputs) {
  std::vector<DoubleTensor> truth;
  for (const at::Tensor& output : impl_->WideResults(inputs)) truth.push_back(AsDoubles(output));
  return truth;
}

void* Reference::Stream() const { return impl_->stream ? impl_->stream->native_handle() : nullptr; }

DoubleTensor Reference::Scale(const std::vector<TensorView>& inputs) {
  if (impl_->problem.scale.empty()) return {};
  return AsDoubles(impl_->Call("scale", impl_->Arguments(impl_->Wide(inputs))).toTensor());
}

std::string TorchVersion() { return TORCH_VERSION; }

}  // namespace kevin
