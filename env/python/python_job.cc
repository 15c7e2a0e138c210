#include "env/python/python_job.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/reference_operators.h"

namespace kevin {
namespace {

using nlohmann::json;

// Of a parameter, in the state_dict() of KernelBench's Model; the problem's own name without facts.
std::string StateName(const Problem& problem, const TensorSpec& spec) {
  return spec.is_param && problem.model ? problem.model->parameters.at(spec.name) : spec.name;
}

// How Model's text makes the values of a parameter: at + width * u, u from [0, 1) or of mean 0 and deviation 1.
json DrawOf(const TensorSpec& spec) {
  const double scale = spec.scale;
  switch (spec.distribution) {
    case Distribution::kUniform:
      return {{"uniform", true}, {"at", spec.offset - scale}, {"width", 2 * scale}};
    case Distribution::kUniform01:
      return {{"uniform", true}, {"at", spec.offset}, {"width", scale}};
    case Distribution::kPositive:
      return {{"uniform", true}, {"at", spec.offset + 0.01 * scale}, {"width", scale}};
    default:
      return {{"uniform", false}, {"at", spec.offset}, {"width", scale}};
  }
}

// The block that `launch` takes in place of many parameters; null: it takes each.
json BlockOf(const SizedProblem& sized) {
  if (!HasParamBlock(*sized.problem)) return nullptr;
  const auto block = std::find_if(sized.arguments.begin(), sized.arguments.end(),
                                  [](const ConcreteTensor& tensor) { return tensor.spec.is_param; });
  return {{"name", kParamBlockName}, {"elements", block->elements}};
}

// Names of inputs and literals; null: the inputs in order.
json ForwardArguments(const Problem& problem, const Symbols& symbols) {
  if (!problem.model) return nullptr;
  json arguments = json::array();
  for (const ModelValue& value : problem.model->forward) arguments.push_back(PythonText(value, symbols));
  return arguments;
}

}  // namespace

json PythonJob(const SizedProblem& sized, const SlotLayout& layout, int slots, bool is_reference) {
  const Problem& problem = *sized.problem;
  json arguments = json::array(), tensors = json::array(), outputs = json::array();
  std::vector<ArgumentPlace> places;
  for (const ArgumentPlace& place : layout.arguments) {
    if (place.output) continue;
    places.push_back(place);
    arguments.push_back({{"offset", place.offset}, {"stride", place.stride}});
  }
  for (size_t i = 0; i < sized.inputs.size(); ++i) {
    const TensorSpec& spec = sized.inputs[i].spec;
    const uint64_t offset = layout.tensors[i].offset;
    const auto in = std::find_if(places.begin(), places.end(), [&](const ArgumentPlace& place) {
      return place.offset <= offset && offset < place.offset + place.stride;
    });
    if (in == places.end()) {
      throw Error(ExitCode::kBadRequest,
                  problem.id + ": input `" + spec.name + "` is written into, which kinds in Python do not do",
                  "use kind cpp or cuda (--kind)");
    }
    tensors.push_back({{"name", spec.name},
                       {"state_name", StateName(problem, spec)},
                       {"shape", sized.inputs[i].shape},
                       {"dtype", DTypeName(spec.dtype)},
                       {"param", spec.is_param},
                       {"stored", spec.stored != nullptr},
                       {"draw", DrawOf(spec)},
                       {"argument", in - places.begin()},
                       {"offset", offset - in->offset}});
  }
  for (const ConcreteTensor& output : sized.outputs)
    outputs.push_back({{"shape", output.shape}, {"dtype", DTypeName(output.spec.dtype)}});
  json job = {{"role", is_reference ? "reference" : "candidate"},
              {"slots", slots},
              {"arguments", arguments},
              {"tensors", tensors},
              {"outputs", outputs},
              {"init", problem.model ? PythonInit(*problem.model, sized.symbols) : "[]"},
              {"symbols", sized.symbols},
              {"block", BlockOf(sized)},
              {"forward", is_reference ? json() : ForwardArguments(problem, sized.symbols)},
              {"precision", DTypeName(DTypeOf(PrecisionOf(problem)))},
              {"seed", 42}};
  if (is_reference) {
    job["problem"] = problem.id;
    job["reference"] = problem.reference;
    job["operators"] = ReferenceOperators();
  }
  return job;
}

}  // namespace kevin
