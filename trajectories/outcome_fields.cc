// Rows of formats 1 to 3: the fields of an outcome that were only in its text.

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/outcome.h"
#include "trajectories/formats.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

// "verify took longer than 20 s"
void AddTimeOut(const std::string& reason, OutcomeFields* fields) {
  static const std::string kMiddle = " took longer than ";
  const size_t at = reason.find(kMiddle);
  if (at == std::string::npos) return;
  fields->timeout_phase = reason.substr(0, at);
  fields->timeout_limit_s = std::strtod(reason.c_str() + at + kMiddle.size(), nullptr);
}

// "at mine/2 (N = 1001): 3:5: error: ..."
void AddFailedShape(const std::string& reason, OutcomeFields* fields) {
  const size_t end = reason.find("): ");
  if (reason.starts_with("at ") && end != std::string::npos) fields->failed_shape = reason.substr(0, end + 1);
}

OutcomeFields FieldsInText(const std::string& outcome, const std::string& reason) {
  OutcomeFields fields;
  if (outcome == "timed_out") AddTimeOut(reason, &fields);
  if (outcome == "compile_failed") AddFailedShape(reason, &fields);
  return fields;
}

std::string TextIn(const Json& shape, const char* name) {
  const auto found = shape.find(name);
  return found != shape.end() && found->is_string() ? found->get<std::string>() : "";
}

void AddFieldsToShape(Json* shape) {
  const OutcomeFields fields = FieldsInText(TextIn(*shape, "outcome"), TextIn(*shape, "reason"));
  if (!fields.timeout_phase.empty()) (*shape)["timeout_phase"] = fields.timeout_phase;
  if (fields.timeout_limit_s) (*shape)["timeout_limit_s"] = *fields.timeout_limit_s;
  if (!fields.failed_shape.empty()) (*shape)["failed_shape"] = fields.failed_shape;
}

// A row that may lack columns of format 4.
struct OldRow {
  std::string id, outcome, reason, machine;
};

std::vector<OldRow> NextOldRows(Database& database, const std::string& after) {
  Statement find = database.Prepare(
      "SELECT id, outcome, reason, machine FROM evaluations WHERE id > ? AND (machine LIKE '%\"shapes\"%' "
      "OR (outcome = 'timed_out' AND timeout_phase IS NULL)) ORDER BY id LIMIT 500");
  std::vector<OldRow> rows;
  find.Bind(after);
  while (find.Step()) rows.push_back({find.Text(0), find.Text(1), find.Text(2), find.Text(3)});
  return rows;
}

void MoveFieldsOf(Database& database, const OldRow& row) {
  std::string machine = row.machine, shapes;
  try {
    Json all = Json::parse(row.machine);
    if (all.is_object() && all.contains("shapes")) {
      for (Json& shape : all["shapes"]) AddFieldsToShape(&shape);
      shapes = DumpJson(all["shapes"]);
      all.erase("shapes");
      machine = DumpJson(all);
    }
  } catch (const Json::exception&) {
    shapes.clear(), machine = row.machine;  // foreign text stays as it is
  }
  const OutcomeFields fields = FieldsInText(row.outcome, row.reason);
  database
      .Prepare(
          "UPDATE evaluations SET machine = ?, shapes = coalesce(?, shapes), timeout_phase = ?, "
          "timeout_limit_s = ?, failed_shape = ? WHERE id = ?")
      .Bind(machine, NullIfEmpty(shapes), NullIfEmpty(fields.timeout_phase), fields.timeout_limit_s,
            NullIfEmpty(fields.failed_shape), row.id)
      .Run();
}

}  // namespace

void MoveOutcomeFields(Database& database) {
  std::string last;
  for (;;) {
    const std::vector<OldRow> rows = NextOldRows(database, last);
    if (rows.empty()) return;
    for (const OldRow& row : rows) MoveFieldsOf(database, row);
    last = rows.back().id;
  }
}

}  // namespace kevin
