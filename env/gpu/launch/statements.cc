#include <fmt/format.h>

#include "env/gpu/launch/interpreter.h"

namespace kevin::launch {

constexpr int64_t kMaxArray = 65536;  // elements

Interpreter::Flow Interpreter::Execute(const Stmt& statement) {
  const Depth depth(this, statement.at);
  switch (statement.kind) {
    case StmtKind::kBlock: {
      const BlockScope scope(frame_);
      return ExecuteBlock(statement.body, 0);
    }
    case StmtKind::kDeclaration:
      for (const Declarator& declarator : statement.declarators) Declare(declarator);
      return Flow::kNormal;
    case StmtKind::kAlias:
      frame_->bindings.types[statement.text] = Resolve(statement.type);
      frame_->bindings.type_texts[statement.text] = TypeArgumentText(statement.type);
      return Flow::kNormal;
    case StmtKind::kExpression:
      Evaluate(*statement.condition);
      return Flow::kNormal;
    case StmtKind::kIf: {
      const BlockScope scope(frame_);
      if (statement.init) Execute(*statement.init);
      const bool holds = TruthOf(source_, statement.condition->at, Evaluate(*statement.condition));
      const size_t branch = holds ? 0 : 1;
      return branch < statement.body.size() ? Execute(*statement.body[branch]) : Flow::kNormal;
    }
    case StmtKind::kFor:
    case StmtKind::kWhile:
    case StmtKind::kDo:
      return ExecuteLoop(statement);
    case StmtKind::kRangeFor:
      return ExecuteRangeFor(statement);
    case StmtKind::kSwitch:
      return ExecuteSwitch(statement);
    case StmtKind::kReturn:
      return ExecuteReturn(statement);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kCase:
    case StmtKind::kDefault:
    case StmtKind::kEmpty:
      return Flow::kNormal;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteBlock(const std::vector<StmtPtr>& statements, size_t from) {
  for (size_t i = from; i < statements.size(); ++i) {
    const Flow flow = Execute(*statements[i]);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteReturn(const Stmt& statement) {
  if (statement.condition) {
    const Value value = Evaluate(*statement.condition);
    frame_->result = Converted(statement.condition->at, value, frame_->result_type);
  }
  return Flow::kReturn;
}

Interpreter::Flow Interpreter::ExecuteLoop(const Stmt& statement) {
  const BlockScope scope(frame_);
  if (statement.init) Execute(*statement.init);
  bool check = statement.kind != StmtKind::kDo;
  while (true) {
    Step(statement.at);
    if (check && statement.condition &&
        !TruthOf(source_, statement.condition->at, Evaluate(*statement.condition))) {
      return Flow::kNormal;
    }
    check = true;
    const Flow flow = Execute(*statement.body[0]);
    if (flow == Flow::kReturn) return flow;
    if (flow == Flow::kBreak) return Flow::kNormal;
    if (statement.step) Evaluate(*statement.step);
  }
}

Interpreter::Flow Interpreter::ExecuteRangeFor(const Stmt& statement) {
  for (const Value& value : ElementsOf(statement.condition->at, Evaluate(*statement.condition))) {
    const BlockScope scope(frame_);
    const Type type = Resolve(statement.type);
    frame_->blocks.back()[statement.text] =
        NewCell(Converted(statement.at, value, type), statement.type.is_const);
    const Flow flow = Execute(*statement.body[0]);
    if (flow == Flow::kReturn) return flow;
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteSwitch(const Stmt& statement) {
  const BlockScope scope(frame_);
  if (statement.init) Execute(*statement.init);
  const int64_t value = WholeNumber(source_, statement.condition->at, Evaluate(*statement.condition),
                                    "the value of the switch");
  const std::vector<StmtPtr>& body = statement.body[0]->body;
  size_t start = body.size();
  for (size_t i = 0; i < body.size(); ++i) {
    Step(body[i]->at);
    if (body[i]->kind == StmtKind::kDefault && start == body.size()) start = i;
    if (body[i]->kind != StmtKind::kCase) continue;
    if (WholeNumber(source_, body[i]->at, Evaluate(*body[i]->condition), "the label") == value) {
      start = i;
      break;
    }
  }
  const BlockScope inner(frame_);
  const Flow flow = ExecuteBlock(body, start);
  return flow == Flow::kBreak ? Flow::kNormal : flow;
}

void Interpreter::Declare(const Declarator& declarator) {
  Step(declarator.at);
  std::map<std::string, Cell*>& names = frame_->blocks.back();
  if (names.contains(declarator.name)) {
    source_.Fail(declarator.at,
                 fmt::format("`{}` is declared already in this block; choose another name", declarator.name));
  }
  const Type type = Resolve(declarator.type);
  if (declarator.is_array) {
    names[declarator.name] = NewCell(DeclareArray(declarator, type), declarator.is_const);
    return;
  }
  if (declarator.type.is_reference && declarator.initialiser.size() == 1) {
    const auto place = FindPlace(*declarator.initialiser[0]);
    if (place && place->extent < 0) {
      names[declarator.name] = place->cell;
      return;
    }
  }
  Value initial = Initial(declarator, type);
  names[declarator.name] = NewCell(std::move(initial), declarator.is_const);
}

Value Interpreter::Initial(const Declarator& declarator, const Type& type) {
  const auto& initialiser = declarator.initialiser;
  if (declarator.form == Declarator::kNone || initialiser.empty()) {
    if (declarator.form == Declarator::kNone && declarator.is_const) {
      source_.Fail(declarator.at, fmt::format("`{}` is const and has no value; write one", declarator.name));
    }
    if (declarator.form == Declarator::kNone || type.Is(TypeKind::kRecord) || type.Is(TypeKind::kDim3)) {
      return Uninitialised(type);
    }

    return Converted(declarator.at, MakeInteger("int", 0), type);
  }
  if (initialiser.size() == 1) return Converted(initialiser[0]->at, Evaluate(*initialiser[0]), type);
  auto list = std::make_shared<ListValue>();
  for (const ExprPtr& expr : initialiser) list->values.push_back(Evaluate(*expr));
  list->names.resize(list->values.size());
  return Converted(declarator.at, MakeOpaque<std::shared_ptr<const ListValue>>(std::move(list)), type);
}

// Reading it is an error, unless its type has a constructor.
Value Interpreter::Uninitialised(const Type& type) {
  if (type.Is(TypeKind::kRecord)) return NewRecord(type);
  if (type.Is(TypeKind::kDim3)) return {type, Extents{1, 1, 1}};
  return {type, std::monostate()};
}

Value Interpreter::DeclareArray(const Declarator& declarator, const Type& element) {
  std::vector<Value> values;
  if (!declarator.initialiser.empty()) {
    values = ElementsOf(declarator.initialiser[0]->at, Evaluate(*declarator.initialiser[0]));
  }
  int64_t size = static_cast<int64_t>(values.size());
  if (declarator.array_size) {
    size =
        WholeNumber(source_, declarator.array_size->at, Evaluate(*declarator.array_size), "the array's size");
  }
  if (size < static_cast<int64_t>(values.size()) || size < 1 || size > kMaxArray) {
    source_.Fail(declarator.at, fmt::format("an array of {} elements with {} values; write a size of 1 to {}",
                                            size, values.size(), kMaxArray));
  }
  Array& array = arrays_.emplace_back();
  array.element = element;
  const bool zero = declarator.form != Declarator::kNone;
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    Step(declarator.at);
    Value value = Uninitialised(element);

    if (i < values.size()) {
      value = Converted(declarator.initialiser[0]->at, values[i], element);
    } else if (zero && std::holds_alternative<std::monostate>(value.data)) {
      value = Converted(declarator.at, MakeInteger("int", 0), element);
    }
    array.cells.push_back(NewCell(std::move(value), declarator.is_const));
  }
  return {{element.info, element.pointers + 1}, ArrayPointer{&array, 0}};
}

}  // namespace kevin::launch
