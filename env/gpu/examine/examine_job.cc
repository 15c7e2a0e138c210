#include "env/gpu/examine/examine_job.h"

#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/gpu/launch_plan.h"

namespace kevin {

using nlohmann::json;

std::string ExamineJobToText(const ExamineJob& job) {
  json arguments = json::array();
  for (const ExaminedArgument& argument : job.arguments) {
    json fills = json::array();
    for (const ExaminedFill& fill : argument.fills) {
      fills.push_back({fill.offset_bytes, fill.elements, fill.drawing.distribution, fill.drawing.scale,
                       fill.drawing.offset});
    }
    arguments.push_back({{"bytes", argument.bytes}, {"fills", fills}});
  }
  return json{{"plan", job.plan},
              {"trusted_cubin", HexText(job.trusted_cubin)},
              {"arguments", arguments},
              {"untouched_memory", job.untouched_memory}}
      .dump();
}

ExamineJob ExamineJobFromText(const std::string& text) {
  try {
    const json object = json::parse(text);
    ExamineJob job;
    job.plan = object.at("plan");
    job.trusted_cubin = BytesFromHex(object.at("trusted_cubin"));
    for (const json& a : object.at("arguments")) {
      ExaminedArgument& argument = job.arguments.emplace_back();
      argument.bytes = a.at("bytes");
      for (const json& fill : a.at("fills"))
        argument.fills.push_back({fill.at(0), fill.at(1), {fill.at(2), fill.at(3), fill.at(4)}});
    }
    job.untouched_memory = object.at("untouched_memory");
    return job;
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBroken, std::string("not a job for kevin-gpu-examiner: ") + error.what());
  }
}

}  // namespace kevin
