// How the kernels of a contraction read their operands: a part by line, a part by term, and conditions.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_product_writer.h"

namespace kevin::search {

std::string CudaProductWriter::Operand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                                       const CudaOperand& operand, const ExprPtr& value,
                                       const std::vector<Loop>& lines) {
  return operand.is_split ? SplitOperand(kernel, name, limit, operand, lines)
                          : OtherOperand(kernel, name, limit, value, lines);
}

std::string CudaProductWriter::SplitOperand(CudaKernel& kernel, const std::string& name,
                                            const std::string& limit, const CudaOperand& o,
                                            const std::vector<Loop>& lines) {
  const bool is_packed = !o.packed.empty();
  const std::string own =
      is_packed ? element_ : CudaElementOf(text_.program().buffers[static_cast<size_t>(o.buffer)].dtype);
  const bool is_grouped = name == "right" && !group_.members.empty();
  const char* const index = o.wide || is_grouped ? "long" : "int";
  const bool flat_line = o.line_stride && o.conditions.empty(),
             flat_term = o.term_stride && o.conditions.empty();
  std::vector<std::string> line(4, "0"), term(4, "0");
  std::string inside;
  for (size_t i = 0; i < o.conditions.size(); ++i) {
    const CudaOperandCondition& condition = o.conditions[i];
    line[i + 1] = CudaInteger(text_, condition.line, false);
    term[i + 1] = CudaInteger(text_, condition.term, false);
    const std::string sum = fmt::format("line.{0} + term.{0}", static_cast<char>('a' + i));
    inside += inside.empty() ? "" : " && ";
    inside += condition.range > 0
                  ? fmt::format("(unsigned)({}) < (unsigned){}", sum, text_.Number(condition.range))
                  : sum + " >= 0";
  }
  if (inside.empty()) inside = "true";
  line[0] = flat_line ? fmt::format("({})l * {}", index, text_.Number(*o.line_stride))
                      : CudaInteger(text_, o.line, o.wide);
  if (is_grouped) line[0] += " + apart";
  term[0] =
      flat_term ? fmt::format("t * {}", text_.Number(*o.term_stride)) : CudaInteger(text_, o.term, false);
  const std::string from = name + "_from";
  const bool direct = own != element_ || (type_ != "float32" && o.copy == 1);
  const std::string load = fmt::format(
      "{0} ? Narrow<{1}>(Widen({2}[line.offset + term.offset])) : Narrow<{1}>(0.0f)", inside, element_, from);
  if (is_packed) kernel.AddParameter(fmt::format("const {}* __restrict__ {}_packed", own, name), o.packed);
  const std::string base =
      is_packed ? fmt::format("{}_packed + (long)batch * {}", name, text_.Number(o.packed_batch))
                : fmt::format("{} + {}", kernel.Buffer(o.buffer), CudaInteger(text_, o.batch, true));
  const std::string text = fmt::format("const {}* const {} = {};\n", own, from, base);
  return text +
         Source(name, limit,
                {o.terms_together, direct ? 1 : o.copy, !flat_term, direct, !o.conditions.empty()}, index,
                (is_grouped ? GroupLine(kernel) : "") +
                    (flat_line ? "" : CudaDecoded(lines, "l", Extents(lines))) + Returned(line),
                (flat_term ? "" : CudaDecoded(c_.k, "t", term_extents_)) + Returned(term),
                fmt::format("return {};\n", direct ? load : inside), own == element_ ? from : "nullptr");
}

// Another expression: the loop variables travel in the parts, four of each.
std::string CudaProductWriter::OtherOperand(CudaKernel& kernel, const std::string& name,
                                            const std::string& limit, const ExprPtr& value,
                                            const std::vector<Loop>& lines) {
  const auto pack = [](const std::vector<Loop>& loops) {
    std::vector<std::string> names;
    for (const Loop& loop : loops) names.push_back(fmt::format("v{}", loop.variable));
    names.resize(4, "0");
    return Returned(names);
  };
  const auto unpack = [](const std::vector<Loop>& loops, const char* from) {
    constexpr const char* kFields[] = {"offset", "a", "b", "c"};
    std::string text;
    for (size_t i = 0; i < loops.size(); ++i)
      text += fmt::format("const int v{} = {}.{};\n", loops[i].variable, from, kFields[i]);
    return text;
  };
  CudaPrinter printer = Printer(kernel);
  const std::string result = printer.Value(value);
  return Source(name, limit, {PrefersTerms(value, lines), 1, true, true, false}, "int",
                CudaDecoded(lines, "l", Extents(lines)) + pack(lines),
                CudaDecoded(c_.k, "t", term_extents_) + pack(c_.k),
                unpack(lines, "line") + unpack(c_.k, "term") + printer.lines() +
                    fmt::format("return Narrow<{}>({});\n", element_, result),
                "nullptr");
}

std::string CudaProductWriter::Returned(const std::vector<std::string>& fields) {
  return fmt::format("return {{{}}};\n", fmt::join(fields, ", "));
}

std::string CudaProductWriter::Source(const std::string& name, const std::string& limit,
                                      const SourceKind& kind, const std::string& index,
                                      const std::string& line, const std::string& term,
                                      const std::string& value, const std::string& from) const {
  return fmt::format("const auto {} = ContractOperand<{}, {}, {}, {}, {}, {}>((const {}*){}, {},\n", name,
                     element_, kind.terms, kind.copy, kind.table, kind.direct, kind.guarded, element_, from,
                     limit) +
         fmt::format(
             "[=](int l) -> ContractLine<{0}> {{\n{1}}},\n[=](int t) -> ContractTerm {{\n{2}}},\n"
             "[=](const ContractLine<{0}>& line, const ContractTerm& term) {{\n{3}}});\n",
             index, line, term, value);
}

// Whether neighbours in memory are terms, by the first load with a unit stride.
bool CudaProductWriter::PrefersTerms(const ExprPtr& value, const std::vector<Loop>& lines) const {
  for (const Expr* node : Nodes(value)) {
    if (node->op != "load") continue;
    if (!lines.empty() && StrideOf(node->args[0], lines.back().variable) == 1) return false;
    if (!c_.k.empty() && StrideOf(node->args[0], c_.k.back().variable) == 1) return true;
  }
  return false;
}

}  // namespace kevin::search
