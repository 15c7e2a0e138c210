#include "env/gpu/examine/examine_job.h"

#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/gpu/runner/launch_plan.h"

namespace kevin {

using nlohmann::json;

std::string ExamineJobToText(const ExamineJob& job) {
  json arguments = json::array();
  for (const ExaminedArgument& argument : job.arguments) {
    json fills = json::array();
    for (const ExaminedFill& fill : argument.fills) {
      const Drawing& d = fill.drawing;
      fills.push_back({fill.offset_bytes, fill.elements, d.distribution, d.scale, d.offset, d.element_bytes,
                       d.whole, d.structure, d.rows, d.brain, d.row_shift, d.row_elements,
                       HexText(fill.stored)});
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
      for (const json& f : a.at("fills")) {
        argument.fills.push_back(
            {f.at(0),
             f.at(1),
             {f.at(2), f.at(3), f.at(4), f.at(5), f.at(6), f.at(7), f.at(8), f.at(9), f.at(10), f.at(11)},
             BytesFromHex(f.at(12))});
      }
    }
    job.untouched_memory = object.at("untouched_memory");
    return job;
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBroken, std::string("not a job for kevin-gpu-examiner: ") + error.what());
  }
}

}  // namespace kevin
