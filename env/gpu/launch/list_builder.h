#pragma once
// The launch list under construction: knows the buffers and CUDA's limits. Throws LaunchException.

#include <set>
#include <string>
#include <vector>

#include "env/gpu/launch/launch_function.h"
#include "env/gpu/launch/value.h"

namespace kevin::launch {

struct Buffer {
  std::string name;  // for messages
  int64_t bytes = 0;
  bool writable = true;
};

struct LaunchConfiguration {
  Extents grid = {1, 1, 1}, block = {1, 1, 1};
  int64_t shared_bytes = 0;
  std::vector<LaunchExtra> extras;
};

class ListBuilder {
 public:
  ListBuilder(const SourceText& source, const LaunchFunctionLimits& limits)
      : source_(source), limits_(limits) {}

  void AddTensor(const std::string& name, int64_t bytes, bool writable);
  void AddNote(size_t at, const std::string& note);  // the same note once

  Value AddWorkspace(size_t at, const Type& element, int64_t count, bool zeroed);
  void AddMemorySet(size_t at, const Value& place, int64_t value, int64_t bytes);
  void AddMemoryCopy(size_t at, const Value& to, const Value& from, int64_t bytes);
  void AddLaunch(size_t at, const std::string& kernel, const LaunchConfiguration& configuration,
                 std::vector<LaunchArgument> arguments);
  void AddConstant(size_t at, const std::string& symbol, int64_t offset, std::vector<uint8_t> bytes);

  // Throws where the pointer is outside its buffer or not aligned for its element type.
  LaunchArgument Address(size_t at, const Value& pointer) const;
  // The same for `bytes` bytes from there on; `written`: to be changed.
  BufferAddress Place(size_t at, const Value& pointer, int64_t bytes, bool written) const;

  LaunchList TakeList() { return std::move(list_); }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::set<std::string>& kernels() const { return kernels_; }

 private:
  void AddOperation(size_t at, LaunchOperation operation);
  Dim3 Checked(size_t at, const char* what, const Extents& extents, const Extents& limits) const;
  void ApplyExtra(size_t at, const LaunchExtra& extra, KernelLaunch* launch);
  std::string BufferText(int buffer) const;

  const SourceText& source_;
  const LaunchFunctionLimits& limits_;
  std::vector<Buffer> buffers_;
  LaunchList list_;
  std::set<std::string> kernels_;
  std::vector<std::string> notes_;
  int64_t workspace_bytes_ = 0, constant_bytes_ = 0;
};

}  // namespace kevin::launch
