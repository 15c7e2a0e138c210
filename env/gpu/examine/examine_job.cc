#include "env/gpu/examine/examine_job.h"

#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/gpu/launch_plan.h"

namespace kevin {

using nlohmann::json;

std::string ExamineJobToText(const ExamineJob& job) {
  json tensors = json::array();
  for (const ExaminedTensor& t : job.tensors) {
    tensors.push_back(
        {t.output, t.bytes, t.elements, t.drawing.distribution, t.drawing.scale, t.drawing.offset});
  }
  return json{{"plan", job.plan},
              {"trusted_cubin", HexText(job.trusted_cubin)},
              {"tensors", tensors},
              {"untouched_memory", job.untouched_memory}}
      .dump();
}

ExamineJob ExamineJobFromText(const std::string& text) {
  try {
    const json object = json::parse(text);
    ExamineJob job;
    job.plan = object.at("plan");
    job.trusted_cubin = BytesFromHex(object.at("trusted_cubin"));
    for (const json& t : object.at("tensors"))
      job.tensors.push_back({t.at(0), t.at(1), t.at(2), {t.at(3), t.at(4), t.at(5)}});
    job.untouched_memory = object.at("untouched_memory");
    return job;
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBroken, std::string("not a job for kevin-gpu-examiner: ") + error.what());
  }
}

}  // namespace kevin
