#include "env/gpu/launch/outline.h"

#include <algorithm>
#include <set>

namespace kevin::launch {
namespace {

constexpr size_t kNone = std::string::npos;

std::vector<size_t> Partners(const std::vector<Token>& tokens) {
  std::vector<size_t> partner(tokens.size(), kNone), open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.Is("(") || token.Is("[") || token.Is("{")) open.push_back(i);
    const char* opener = token.Is(")") ? "(" : token.Is("]") ? "[" : token.Is("}") ? "{" : nullptr;
    if (!opener) continue;
    // A brace closes whatever was left open inside it.
    if (token.Is("}")) {
      while (!open.empty() && !tokens[open.back()].Is("{")) open.pop_back();
    }
    if (open.empty() || !tokens[open.back()].Is(opener)) continue;
    partner[i] = open.back();
    partner[open.back()] = i;
    open.pop_back();
  }
  return partner;
}

// A '<' is closed by a '>' with nothing between them that ends a statement or leaves a bracket.
std::vector<size_t> Angles(const std::vector<Token>& tokens) {
  std::vector<size_t> angles(tokens.size(), kNone), open;
  const auto drop = [&](const char* down_to) {
    while (!open.empty() && (down_to ? !tokens[open.back()].Is(down_to) : tokens[open.back()].Is("<"))) {
      open.pop_back();
    }
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.Is("<") || token.Is("(") || token.Is("[") || token.Is("{")) {
      open.push_back(i);
    } else if (token.Is(">")) {
      if (open.empty() || !tokens[open.back()].Is("<")) continue;
      angles[open.back()] = i;
      open.pop_back();
    } else if (token.Is(";") || token.Is("<<<")) {
      drop(nullptr);
    } else if (token.Is(")") || token.Is("]") || token.Is("}")) {
      drop(token.Is(")") ? "(" : token.Is("]") ? "[" : "{");
      if (!open.empty()) open.pop_back();
    }
  }
  return angles;
}

// Names that take a parenthesis and yet declare nothing.
bool IsAttribute(const std::string& name) {
  static const std::set<std::string> kNames = {
      "__attribute__", "__launch_bounds__", "alignas",  "__align__", "__cluster_dims__", "decltype",
      "__declspec",    "explicit",          "noexcept", "requires",  "__maxnreg__",      "__block_size__"};
  return kNames.contains(name);
}

// Words a host declaration in a PTX text may begin with.
bool StartsHostDeclaration(const std::string& name) {
  static const std::set<std::string> kNames = {
      "launch", "void",    "extern",    "static",  "inline",   "const",    "constexpr", "template", "enum",
      "using",  "typedef", "int",       "long",    "unsigned", "size_t",   "auto",      "bool",     "float",
      "double", "dim3",    "namespace", "int64_t", "int32_t",  "uint32_t", "uint64_t",  "__host__"};
  return kNames.contains(name);
}

class OutlineReader {
 public:
  OutlineReader(const SourceText& source, Preprocessed preprocessed) : source_(source) {
    outline_.tokens = std::move(preprocessed.tokens);
    outline_.directives = std::move(preprocessed.directives);
    outline_.includes = preprocessed.includes;
    outline_.partner = Partners(outline_.tokens);
    outline_.angles = Angles(outline_.tokens);
    end_ = outline_.tokens.size() - 1;
  }

  Outline Read(bool ptx) {
    while (at_ < end_) {
      const size_t before = at_;
      ptx ? PtxStep() : Step();
      if (at_ == before) ++at_;
    }
    NameTypes();
    return std::move(outline_);
  }

 private:
  const Token& At(size_t i) const { return outline_.tokens[std::min(i, end_)]; }
  bool Is(size_t i, const char* text) const { return i < end_ && outline_.tokens[i].Is(text); }

  size_t Partner(size_t open) const {
    if (outline_.partner[open] == kNone) {
      source_.Fail(At(open).begin,
                   "this `" + At(open).text + "` is never closed; check the brackets after it");
    }
    return outline_.partner[open];
  }

  void NameTypes() {
    for (const Alias& alias : outline_.aliases) outline_.type_names.insert(alias.name);
    for (const Constants& constants : outline_.constants) {
      if (!constants.enum_name.empty()) outline_.type_names.insert(constants.enum_name);
    }
    for (const Function& function : outline_.functions) {
      if (function.is_template) outline_.template_names.insert(function.name);
    }
  }

  void PtxStep() {
    const Token& token = At(at_);
    const bool after_dot =
        at_ > 0 && (Is(at_ - 1, ".") || Is(at_ - 1, ",") || Is(at_ - 1, "entry") || Is(at_ - 1, "func"));
    if (token.IsName() && !after_dot && StartsHostDeclaration(token.text)) {
      const size_t begin = at_;
      Step();
      outline_.host_declarations.push_back({begin, at_});
    } else if (token.Is("{") || token.Is("(")) {
      at_ = Partner(at_) + 1;
    } else if (token.Is("entry") && Is(at_ - 1, ".") && At(at_ + 1).IsName()) {
      Function kernel;
      kernel.name = At(at_ + 1).text;
      kernel.global = kernel.defined = true;
      outline_.functions.push_back(kernel);
      at_ += 2;
    }
  }

  void Step() {
    if (Is(at_, "}")) {
      if (!scopes_.empty()) scopes_.pop_back();
      ++at_;
    } else if (Is(at_, "namespace") || (Is(at_, "inline") && Is(at_ + 1, "namespace"))) {
      Namespace();
    } else if (Is(at_, "extern") && At(at_ + 1).kind == TokenKind::kString && Is(at_ + 2, "{")) {
      Partner(at_ + 2);
      scopes_.push_back("");
      at_ += 3;
    } else if (Is(at_, "using") || Is(at_, "typedef")) {
      TypeAlias();
    } else if (!Is(at_, ";")) {
      Declaration();
    }
  }

  std::string Scope() const {
    std::string scope;
    for (const std::string& part : scopes_) scope += part;
    return scope;
  }

  void Namespace() {
    at_ += Is(at_, "inline") ? 2 : 1;
    std::string name;
    while (At(at_).IsName() || Is(at_, "::")) {
      if (At(at_).IsName()) name += At(at_).text + "::";
      ++at_;
    }
    if (Is(at_, "{")) {
      Partner(at_);
      scopes_.push_back(name);
      ++at_;
    } else {
      SkipToSemicolon();
    }
  }

  void SkipToSemicolon() {
    while (at_ < end_ && !Is(at_, ";") && !Is(at_, "}")) {
      const bool opens = Is(at_, "{") || Is(at_, "(") || Is(at_, "[");
      at_ = opens ? Partner(at_) + 1 : at_ + 1;
    }
    if (Is(at_, ";")) ++at_;
  }

  void TypeAlias() {
    const size_t begin = at_;
    SkipToSemicolon();
    const size_t semicolon = at_ - 1;
    if (!Is(semicolon, ";")) return;
    if (Is(begin, "using") && Is(begin + 1, "namespace")) {
      std::string name;
      for (size_t i = begin + 2; i < semicolon; ++i) name += At(i).text;
      outline_.used_namespaces.push_back(name + "::");
    } else if (Is(begin, "using") && At(begin + 1).IsName() && Is(begin + 2, "=")) {
      outline_.aliases.push_back({Scope(), At(begin + 1).text, {begin + 3, semicolon}});
    } else if (Is(begin, "typedef") && semicolon > begin + 2 && At(semicolon - 1).IsName()) {
      outline_.aliases.push_back({Scope(), At(semicolon - 1).text, {begin + 1, semicolon - 1}});
    }
  }

  // One declaration: a function, variables, a class or an enum.
  void Declaration() {
    Function function;
    function.scope = Scope();
    function.whole.begin = at_;
    bool has_parameters = false, is_enum = false, is_class = false, is_constant = false, on_device = false;
    size_t enum_body = kNone;
    while (at_ < end_ && !Is(at_, "}")) {
      const Token& token = At(at_);
      if (token.Is(";") || token.Is("=")) break;
      if (token.Is("template") && Is(at_ + 1, "<")) {
        const size_t close = ClosingAngle(outline_, at_ + 1, end_);
        if (close == kNone) source_.Fail(At(at_ + 1).begin, "this `<` is never closed; write > after it");
        function.is_template = true;
        function.template_parameters = {at_ + 2, close};
        at_ = close + 1;
      } else if (token.IsName() && IsAttribute(token.text) && Is(at_ + 1, "(")) {
        at_ = Partner(at_ + 1) + 1;
      } else if (token.Is("<") && at_ > 0 && At(at_ - 1).IsName()) {
        const size_t close = ClosingAngle(outline_, at_, end_);
        at_ = close == kNone ? at_ + 1 : close + 1;
      } else if (token.Is("(") || token.Is("[")) {
        const size_t close = Partner(at_);
        if (token.Is("(") && !has_parameters && at_ > function.whole.begin && At(at_ - 1).IsName()) {
          has_parameters = true;
          function.name = At(at_ - 1).text;
          function.name_token = at_ - 1;
          function.parameters = {at_ + 1, close};
          if (at_ > 1 && (Is(at_ - 2, "::") || Is(at_ - 2, "operator"))) function.name.clear();
        }
        at_ = close + 1;
      } else if (token.Is("{")) {
        const size_t close = Partner(at_);
        if (has_parameters) {
          function.body = {at_ + 1, close};
          function.defined = true;
          at_ = close + 1;
          function.whole.end = at_;
          AddFunction(function);
          return;
        }
        enum_body = is_enum && enum_body == kNone ? at_ : enum_body;
        at_ = close + 1;
      } else {
        is_enum |= token.Is("enum");
        is_class |= token.Is("struct") || token.Is("class") || token.Is("union");
        is_constant |= token.Is("const") || token.Is("constexpr");
        on_device |= token.Is("__device__") || token.Is("__constant__") || token.Is("__shared__");
        ++at_;
      }
    }
    const bool initialised = Is(at_, "=");
    SkipToSemicolon();
    function.whole.end = at_;
    if (is_enum && enum_body != kNone) {
      AddEnum(function.whole.begin, enum_body);
    } else if (has_parameters && !initialised && !is_class &&
               !(is_constant && LooksLikeInitialiser(function))) {
      AddFunction(function);
    } else {
      AddVariables(function.whole, is_constant, on_device);
    }
  }

  // `const int kTile(16);`
  bool LooksLikeInitialiser(const Function& function) const {
    return function.parameters.end == function.parameters.begin + 1 &&
           At(function.parameters.begin).kind == TokenKind::kNumber;
  }

  void AddFunction(Function& function) {
    for (size_t i = function.whole.begin; i < function.name_token; ++i) {
      function.global |= Is(i, "__global__");
      function.device |= Is(i, "__device__");
      function.host |= Is(i, "__host__");
      function.constant |= Is(i, "constexpr");
      function.extern_c |= Is(i, "extern");
    }
    if (!function.name.empty()) outline_.functions.push_back(function);
  }

  void AddEnum(size_t begin, size_t body) {
    Constants constants;
    constants.scope = Scope();
    constants.is_enum = true;
    constants.range = {body + 1, Partner(body)};
    for (size_t i = begin; i < body && !Is(i, ":"); ++i) {
      constants.scoped |= Is(i, "class") || Is(i, "struct");
      if (At(i).IsName() && !Is(i, "enum") && !Is(i, "class") && !Is(i, "struct")) {
        constants.enum_name = At(i).text;
      }
    }
    outline_.constants.push_back(constants);
  }

  void AddVariables(TokenRange whole, bool is_constant, bool on_device) {
    size_t constant_memory = kNone;
    for (size_t i = whole.begin; i < whole.end; ++i) {
      if (Is(i, "__constant__")) constant_memory = i;
    }
    if (constant_memory != kNone) {
      AddConstantVariable(whole);
    } else if (is_constant && (!on_device || !Is(whole.begin, "extern")) && Is(whole.end - 1, ";")) {
      outline_.constants.push_back({Scope(), whole, false, "", false});
    }
  }

  // [static] __constant__ [const] TYPE NAME [N] ...;
  void AddConstantVariable(TokenRange whole) {
    size_t name = whole.begin;
    while (name + 1 < whole.end &&
           !(At(name).IsName() && (Is(name + 1, "[") || Is(name + 1, ";") || Is(name + 1, "=") ||
                                   Is(name + 1, "{") || Is(name + 1, ",")))) {
      ++name;
    }
    outline_.constant_variables.push_back({Scope(), At(name).text, {whole.begin, name}});
  }

  const SourceText& source_;
  Outline outline_;
  std::vector<std::string> scopes_;
  size_t at_ = 0, end_ = 0;
};

}  // namespace

size_t ClosingAngle(const Outline& outline, size_t open, size_t end) {
  const size_t close = outline.angles[open];
  return close < end ? close : kNone;
}

Outline ReadOutline(const SourceText& source, const Symbols& symbols, bool ptx) {
  return OutlineReader(source, Preprocess(source, symbols)).Read(ptx);
}

}  // namespace kevin::launch
