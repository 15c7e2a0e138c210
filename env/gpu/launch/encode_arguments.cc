#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "env/gpu/compile/gpu_module.h"

namespace kevin {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

// Round to nearest even, as hardware does.
uint16_t HalfBits(double value) {
  if (std::isnan(value)) return 0x7fff;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int step = std::max(exponent - 11, -24);  // 2^step: distance of neighbouring halves
  const double units = std::nearbyint(std::ldexp(magnitude, -step));
  // With the exponent's field added, a carry out of the mantissa does the right thing.
  const int field = step == -24 ? 0 : step + 24;
  return static_cast<uint16_t>(sign + field * 1024 + static_cast<int>(units));
}

uint16_t Bfloat16Bits(double value) {
  if (std::isnan(value)) return 0x7fff;
  // Straight from the double: rounding to float first could round twice.
  const auto single = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(single);
  const double error = value - static_cast<double>(single);
  const uint32_t rest = bits & 0xffff;
  const bool odd = bits >> 16 & 1;
  const bool larger = (error > 0) != std::signbit(value) && error != 0;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (error == 0 ? odd : larger));
  if (!std::isinf(single) && up) bits += 0x10000;
  return static_cast<uint16_t>(bits >> 16);
}

bool IsInteger(const KernelParameter& parameter) {
  const char kind = parameter.type.empty() ? ' ' : parameter.type[0];
  const bool bits = kind == 'b' && parameter.type != "b8" && parameter.bytes > 2;
  return kind == 'u' || kind == 's' || bits || (parameter.type == "b8" && parameter.bytes == 1);
}

bool IsHalf(const KernelParameter& parameter) {
  return parameter.bytes == 2 && (parameter.type == "b8" || parameter.type == "b16" ||
                                  parameter.type == "f16" || parameter.type == "bf16");
}

class Encoder {
 public:
  Encoder(const KernelLaunch& launch, const KernelInfo& kernel) : launch_(launch), kernel_(kernel) {}

  EncodedArguments Run(std::string* error) {
    const size_t wanted = kernel_.parameters.size();
    if (launch_.arguments.size() != wanted) {
      *error = fmt::format("kernel `{}` takes {} argument{} and gets {}; pass one for each parameter",
                           launch_.kernel, wanted, wanted == 1 ? "" : "s", launch_.arguments.size());
      return {};
    }
    for (index_ = 0; index_ < wanted && error_.empty(); ++index_) {
      const KernelParameter& parameter = kernel_.parameters[index_];
      const int64_t align = std::max<int64_t>(parameter.align > 0 ? parameter.align : parameter.bytes, 1);
      at_ = (static_cast<int64_t>(result_.bytes.size()) + align - 1) / align * align;
      result_.offsets.push_back(at_);
      result_.bytes.resize(static_cast<size_t>(at_ + parameter.bytes));
      Encode(launch_.arguments[index_], parameter);
    }
    *error = error_;
    return error_.empty() ? std::move(result_) : EncodedArguments{};
  }

 private:
  void Fail(const std::string& what) {
    error_ = fmt::format("argument {} of `{}`: {}", index_ + 1, launch_.kernel, what);
  }

  void Put(uint64_t bits, int64_t bytes) {
    std::memcpy(result_.bytes.data() + at_, &bits, static_cast<size_t>(std::min<int64_t>(bytes, 8)));
  }

  void Encode(const LaunchArgument& argument, const KernelParameter& parameter) {
    std::visit(Overloaded{[&](int64_t value) { Integer(value, parameter); },
                          [&](bool value) { Integer(value ? 1 : 0, parameter); },
                          [&](double value) { Floating(value, parameter); },
                          [&](const BufferAddress& address) {
                            if (Address(parameter)) result_.pointers.push_back({at_, address});
                          },
                          [&](const NullPointer&) { Address(parameter); },
                          [&](const TensorMap& map) {
                            if (parameter.type != "b8" || parameter.bytes != 128 || parameter.align < 64) {
                              return Fail(
                                  "a tensor map fits only `const __grid_constant__ CUtensorMap`, and the "
                                  "kernel declares something else");
                            }
                            result_.maps.push_back({at_, map});
                          }},
               argument);
  }

  bool Address(const KernelParameter& parameter) {
    const bool fits = IsInteger(parameter) && parameter.bytes == 8;
    if (!fits) Fail(fmt::format("a pointer does not fit into a parameter of {} bytes", parameter.bytes));
    return fits;
  }

  void Integer(int64_t value, const KernelParameter& parameter) {
    if (!IsInteger(parameter)) return Floating(static_cast<double>(value), parameter);
    const int64_t bits = parameter.bytes * 8;
    // PTX declares signed and unsigned integers alike, so either reading will do.
    if (bits < 64 && (value < -(int64_t{1} << (bits - 1)) || value >= (int64_t{1} << bits))) {
      return Fail(
          fmt::format("{} does not fit into a {}-bit integer parameter; declare it long", value, bits));
    }
    Put(static_cast<uint64_t>(value), parameter.bytes);
  }

  void Floating(double value, const KernelParameter& parameter) {
    if (parameter.type == "f32") return Put(std::bit_cast<uint32_t>(Single(value)), 4);
    if (parameter.type == "f64") return Put(std::bit_cast<uint64_t>(value), 8);
    if (IsHalf(parameter)) return Half(value, parameter);
    if (IsInteger(parameter)) {
      const double whole = std::trunc(value);
      if (std::fabs(whole) < 9.2e18) return Integer(static_cast<int64_t>(whole), parameter);
      return Fail(fmt::format("{} does not fit into a {}-bit integer parameter; pass a smaller number", value,
                              parameter.bytes * 8));
    }
    Fail(fmt::format("a number does not fit into a struct of {} bytes; pass its members as numbers",
                     parameter.bytes));
  }

  static float Single(double value) {
    if (std::isfinite(value) && std::fabs(value) >= 3.4028235677973366e38) {
      return std::copysign(HUGE_VALF, static_cast<float>(std::copysign(1.0, value)));
    }
    return static_cast<float>(value);
  }

  // A struct of two bytes is __half or __nv_bfloat16; only the mangled name tells which.
  void Half(double value, const KernelParameter& parameter) {
    const bool half = kernel_.lowered_name.find("6__half") != std::string::npos;
    const bool brain =
        kernel_.lowered_name.find("13__nv_bfloat16") != std::string::npos || parameter.type == "bf16";
    if (half && brain)
      return Fail("the kernel has __half and __nv_bfloat16 parameters; let this one be a float");
    Put(brain ? Bfloat16Bits(value) : HalfBits(value), 2);
  }

  const KernelLaunch& launch_;
  const KernelInfo& kernel_;
  EncodedArguments result_;
  std::string error_;
  size_t index_ = 0;
  int64_t at_ = 0;
};

}  // namespace

EncodedArguments EncodeArguments(const KernelLaunch& launch, const KernelInfo& kernel, std::string* error) {
  return Encoder(launch, kernel).Run(error);
}

}  // namespace kevin
