#include "tools/export/launch_code.h"

#include <fmt/format.h>

#include <set>

#include "env/error.h"
#include "env/gpu/launch/launch_function.h"

namespace kevin {
namespace {

constexpr char kBegin[] =
    "#include <cuda.h>\n#include <cuda_runtime.h>\n\n#include <cfloat>\n#include <climits>\n#include "
    "<cmath>\n"
    "#include <cstdint>\n#include <cstring>\n\n#define __KEVIN__ 1\n";

// Converts to the pointer type of any kernel parameter; offsets are those of the launch function.
constexpr char kHelpers[] = R"(
namespace kevin_launch {

struct Address {
  char* at;
  template <class T>
  operator T*() const { return reinterpret_cast<T*>(at); }
};

template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), const cudaLaunchConfig_t& config, Arguments... arguments) {
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

)";

constexpr char kTensorMaps[] =
    R"(inline CUtensorMap MakeTensorMap(CUtensorMapDataType type, int rank, char* base, const cuuint64_t* sizes,
                                 const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps,
                                 int interleave, int swizzle, int promotion, int fill) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static void* const entry = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult how;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how);
    return found;
  }();
  CUtensorMap map;
  std::memset(&map, 0, sizeof map);
  if (entry != nullptr)
    reinterpret_cast<Encode>(entry)(&map, type, rank, base, sizes, strides, box, steps,
                                    static_cast<CUtensorMapInterleave>(interleave),
                                    static_cast<CUtensorMapSwizzle>(swizzle),
                                    static_cast<CUtensorMapL2promotion>(promotion),
                                    static_cast<CUtensorMapFloatOOBfill>(fill));
  return map;
}

)";

std::string Dimensions(const Dim3& d) { return fmt::format("dim3({}u, {}u, {}u)", d.x, d.y, d.z); }

std::string PlaceCode(const BufferAddress& a) {
  if (a.offset_bytes == 0) return fmt::format("buffers[{}]", a.buffer);
  return fmt::format("buffers[{}] + {}L", a.buffer, a.offset_bytes);
}

std::string DoubleText(double value) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
  std::string text = fmt::format("{:.17g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class LaunchWriter {
 public:
  explicit LaunchWriter(const LaunchList& list) : list_(list) {}

  std::string SetUp() {
    std::string body;
    std::set<std::string> done;
    // Loads each kernel, which a stream that is being captured does not allow.
    for (const LaunchOperation& operation : list_.operations) {
      const auto* launch = std::get_if<KernelLaunch>(&operation);
      if (launch == nullptr || !done.insert(launch->kernel).second) continue;
      body += fmt::format("  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, {});\n",
                          launch->kernel);
    }
    for (const LaunchOperation& operation : list_.operations) {
      const auto* launch = std::get_if<KernelLaunch>(&operation);
      if (launch == nullptr) continue;
      if (launch->shared_bytes > 48 << 10)
        body +=
            Attribute(*launch, "cudaFuncAttributeMaxDynamicSharedMemorySize", launch->shared_bytes, &done);
      if (launch->cluster && launch->cluster->x * launch->cluster->y * launch->cluster->z > 8)
        body += Attribute(*launch, "cudaFuncAttributeNonPortableClusterSizeAllowed", 1, &done);
    }
    for (const ConstantValue& constant : list_.constants) body += Constant(constant);
    if (!list_.constants.empty())
      body += "  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);\n";
    return "static cudaError_t SetUp(cudaStream_t stream = nullptr) {\n  (void)stream;\n  cudaError_t error = "
           "cudaSuccess;\n  cudaFuncAttributes attributes;\n  (void)attributes;\n" +
           body + "  return error;\n}\n\n";
  }

  std::string Run() {
    std::string body;
    for (const LaunchOperation& operation : list_.operations) {
      if (const auto* launch = std::get_if<KernelLaunch>(&operation)) body += Launch(*launch);
      if (const auto* set = std::get_if<MemorySet>(&operation))
        body += fmt::format("  if (error == cudaSuccess) error = cudaMemsetAsync({}, {}, {}L, stream);\n",
                            PlaceCode(set->place), set->value, set->bytes);
      if (const auto* copy = std::get_if<MemoryCopy>(&operation))
        body += fmt::format(
            "  if (error == cudaSuccess)\n    error = cudaMemcpyAsync({}, {}, {}L, cudaMemcpyDeviceToDevice, "
            "stream);\n",
            PlaceCode(copy->to), PlaceCode(copy->from), copy->bytes);
    }
    return "static cudaError_t Run(char* const* buffers, cudaStream_t stream) {\n  (void)buffers;\n  "
           "cudaError_t "
           "error = cudaSuccess;\n" +
           body + "  return error;\n}\n";
  }

  bool has_maps() const { return has_maps_; }

 private:
  static std::string Attribute(const KernelLaunch& launch, const char* name, int64_t value,
                               std::set<std::string>* done) {
    const std::string line =
        fmt::format("  if (error == cudaSuccess) error = cudaFuncSetAttribute({}, {}, {});\n", launch.kernel,
                    name, value);
    return done->insert(line).second ? line : "";
  }

  std::string Constant(const ConstantValue& c) {
    std::string bytes;
    for (size_t i = 0; i < c.bytes.size(); ++i) bytes += fmt::format("{}{}", i == 0 ? "" : ",", c.bytes[i]);
    const int n = constants_++;
    return fmt::format(
        "  static const unsigned char constant{}[] = {{{}}};\n  if (error == cudaSuccess)\n    error = "
        "cudaMemcpyToSymbolAsync({}, constant{}, sizeof constant{}, {}, cudaMemcpyHostToDevice, stream);\n",
        n, bytes, c.symbol, n, n, c.offset_bytes);
  }

  std::string Map(const TensorMap& m) {
    has_maps_ = true;
    const std::string name = fmt::format("map{}", maps_++);
    const auto list = [](const auto& values) { return fmt::format("{}", fmt::join(values, ", ")); };
    const std::string type = m.dtype == "float16"    ? "FLOAT16"
                             : m.dtype == "bfloat16" ? "BFLOAT16"
                             : m.dtype == "int32"    ? "INT32"
                             : m.dtype == "uint8"    ? "UINT8"
                                                     : "FLOAT32";
    declarations_ += fmt::format(
        "    const cuuint64_t {0}_sizes[] = {{{1}}}, {0}_strides[] = {{{2}}};\n"
        "    const cuuint32_t {0}_box[] = {{{3}}}, {0}_steps[] = {{{4}}};\n"
        "    const CUtensorMap {0} = kevin_launch::MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_{5}, {6}, {7}, "
        "{0}_sizes,\n"
        "        {0}_strides, {0}_box, {0}_steps, {8}, {9}, {10}, {11});\n",
        name, list(m.sizes), m.stride_bytes.empty() ? "0" : list(m.stride_bytes), list(m.box),
        list(m.element_strides), type, m.sizes.size(), PlaceCode(m.base), m.interleave, m.swizzle,
        m.l2_promotion, m.out_of_bounds_nan);
    return name;
  }

  std::string Argument(const LaunchArgument& argument) {
    struct Text {
      LaunchWriter* writer;
      std::string operator()(int64_t value) const { return fmt::format("{}L", value); }
      std::string operator()(double value) const { return DoubleText(value); }
      std::string operator()(bool value) const { return value ? "true" : "false"; }
      std::string operator()(const BufferAddress& a) const {
        return "kevin_launch::Address{" + PlaceCode(a) + "}";
      }
      std::string operator()(const NullPointer&) const { return "nullptr"; }
      std::string operator()(const TensorMap& map) const { return writer->Map(map); }
    };
    return std::visit(Text{this}, argument);
  }

  std::string Launch(const KernelLaunch& launch) {
    declarations_.clear();
    std::string arguments;
    for (const LaunchArgument& argument : launch.arguments) arguments += ", " + Argument(argument);
    int count = 0;
    std::string attributes;
    const auto attribute = [&](const std::string& id, const std::string& value) {
      attributes +=
          fmt::format("    attributes[{0}].id = {1};\n    attributes[{0}].val.{2};\n", count++, id, value);
    };
    if (launch.cluster)
      attribute("cudaLaunchAttributeClusterDimension",
                fmt::format("clusterDim = {{{}u, {}u, {}u}}", launch.cluster->x, launch.cluster->y,
                            launch.cluster->z));
    if (launch.cooperative) attribute("cudaLaunchAttributeCooperative", "cooperative = 1");
    if (launch.programmatic)
      attribute("cudaLaunchAttributeProgrammaticStreamSerialization",
                "programmaticStreamSerializationAllowed = 1");
    std::string text = "  if (error == cudaSuccess) {\n" + declarations_;
    text += fmt::format(
        "    cudaLaunchConfig_t config = {{}};\n    config.gridDim = {};\n    config.blockDim = {};\n"
        "    config.dynamicSmemBytes = {};\n    config.stream = stream;\n",
        Dimensions(launch.grid), Dimensions(launch.block), launch.shared_bytes);
    if (count > 0)
      text += fmt::format(
          "    cudaLaunchAttribute attributes[{0}] = {{}};\n{1}    config.attrs = attributes;\n    "
          "config.numAttrs = {0};\n",
          count, attributes);
    return text +
           fmt::format("    error = kevin_launch::Launch({}, config{});\n  }}\n", launch.kernel, arguments);
  }

  const LaunchList& list_;
  std::string declarations_;
  int maps_ = 0, constants_ = 0;
  bool has_maps_ = false;
};

}  // namespace

LaunchCode WriteLaunchCode(const SizedProblem& problem, const std::string& kind, const std::string& source) {
  if (kind != "cuda") {
    throw Error(ExitCode::kBadRequest, fmt::format("a kernel of kind {} cannot be written as CUDA C++", kind),
                "kind cuda can; without --as the source is exported as it is");
  }
  LaunchCode code;
  try {
    const InterpretedLaunch launch = InterpretLaunch(problem, kind, source);
    LaunchWriter writer(launch.list);
    const std::string set_up = writer.SetUp(), run = writer.Run();
    code.text = kBegin;
    for (const auto& [name, value] : problem.symbols)
      code.text += fmt::format("constexpr long {} = {};\n", name, value);
    code.text += "\n" + launch.split.device_text + "\n" + kHelpers;
    if (writer.has_maps()) code.text += kTensorMaps;
    code.text += set_up + run + "\n}  // namespace kevin_launch\n";
    code.needs_driver = writer.has_maps();
    for (const Workspace& workspace : launch.list.workspaces) code.workspace_bytes.push_back(workspace.bytes);
  } catch (const LaunchException& problem_with_it) {
    throw Error(ExitCode::kBadRequest,
                "the kernel's launch function cannot be read: " + problem_with_it.error().message,
                "export it as it is, without --as");
  }
  return code;
}

std::string ArchitectureFlag(const std::string& source) {
  return source.find("wgmma.") == std::string::npos ? "" : "-gencode=arch=compute_90a,code=sm_90a";
}

}  // namespace kevin
