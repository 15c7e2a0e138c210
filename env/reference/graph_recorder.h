#pragma once
// What a run of a reference leaves of its tensors: nodes and values. For env/reference/graph.cc alone.
//
// Tensors that share memory are views of one another. Of each the recorder knows the view that made it, so that a
// write to one of them is also a new value of the others: of those above it at once, of the others when they are
// used next (their view is then recorded again).

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace kevin {

struct RecordedValue {
  std::string dtype;
  std::vector<int64_t> shape;
};

struct RecordedNode {
  std::string op;
  nlohmann::ordered_json args;
  std::vector<int> results;
  // Of a loop: {init, param, next, result}, {next, result}, -1 for a result that is not used.
  std::vector<std::vector<int>> carried, stacked;
  std::vector<RecordedNode> body;
};

// The nodes of the iterations of a loop: iteration i is [starts[i], starts[i + 1]).
struct RecordedLoop {
  std::vector<size_t> starts;
};

struct RecordedGraph {
  std::vector<RecordedValue> values;
  std::vector<RecordedNode> nodes;
  std::vector<RecordedLoop> loops;  // inner ones first
  std::vector<int> inputs, outputs;
};

// "float32"; throws Error(kBadRequest) for a type that no graph has.
std::string GraphDType(at::ScalarType type);

class GraphRecorder {
 public:
  // A tensor without a producer.
  int AddInput(const at::Tensor& tensor);
  // Its number, as of now. Throws Error(kBadRequest) for a tensor that nothing recorded made.
  int ValueOf(const at::Tensor& tensor);
  // The numbers of the inputs, as of now: another than in graph.inputs for one that was written to.
  std::vector<int> InputsNow();
  // The arguments of a call, by the names of its schema. To be called before the operator runs.
  nlohmann::ordered_json Arguments(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> inputs);
  // A call that has run; nothing is recorded where all its tensors are known.
  void Record(const std::string& op, nlohmann::ordered_json args, const std::vector<at::Tensor>& inputs,
              const std::vector<at::Tensor>& results);
  // A call in place that has changed `self`: `op` is the name of the pure form.
  void RecordWrite(const std::string& op, nlohmann::ordered_json args, const at::Tensor& self);
  // self[...] = source
  void RecordCopy(const at::Tensor& self, const at::Tensor& source);

  RecordedGraph graph;

 private:
  struct Known {
    at::Tensor tensor;  // keeps the address
    int value = 0;
    int64_t version = 0;             // of the memory when `value` was computed
    const at::Tensor* of = nullptr;  // view of; null: of none
    std::string view;                // the operator
    nlohmann::ordered_json view_args;
    size_t result = 0;         // which one of the operator's results
    std::vector<int> results;  // all of them
  };

  Known* Find(const at::Tensor& tensor);
  int Add(const at::Tensor& tensor, const at::Tensor* of);
  int NewValue(const at::Tensor& tensor);
  int Emit(const std::string& op, nlohmann::ordered_json args, const at::Tensor& like);
  nlohmann::ordered_json ArgumentOf(const c10::IValue& value, const std::string& name);
  void Write(Known* known, int value);
  int Scattered(const Known& view, int value);

  std::vector<at::Tensor> inputs_;
  std::unordered_map<const c10::TensorImpl*, Known> known_;
  std::unordered_map<const void*, int64_t> versions_;  // of memories
};

}  // namespace kevin
