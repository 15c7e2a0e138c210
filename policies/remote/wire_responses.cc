// OpenAI Responses.

#include "policies/remote/wire.h"

namespace kevin::remote {
namespace {

class ResponsesWire : public Wire {
 public:
  const char* Provider() const override { return "openai-responses"; }
  std::string Path() const override { return "/responses"; }
  std::vector<std::string> Headers(const std::string& key) const override { return BearerHeaders(key); }

  std::string WhyNot(const Sampling& sampling, const WireContext& context) const override {
    if (sampling.top_k) return "Responses have no top_k";
    if (!sampling.stop.empty()) return "Responses have no stop texts";
    if (sampling.n != 1) return "Responses give one answer each";
    if (sampling.thinking_tokens) return "Responses have no thinking budget; use a reasoning effort";
    if (context.wants_tokens) return "Responses give no token ids; use openai: with a server that does";
    return "";
  }

  Json Body(const Request& request, const WireContext& context) const override {
    Json body = {{"model", context.model}};
    Json input = Json::array();
    for (const Message& message : request.messages) {
      if (message.role == "system") {
        body["instructions"] = ValidUtf8(message.content);
      } else {
        input.push_back({{"role", message.role}, {"content", ValidUtf8(message.content)}});
      }
    }
    body["input"] = input;
    body["max_output_tokens"] = request.sampling.max_tokens;
    AddCommonSampling(request.sampling, &body);
    if (!request.sampling.reasoning_effort.empty())
      body["reasoning"] = {{"effort", request.sampling.reasoning_effort}};
    body["store"] = false;  // nothing is to be kept over there
    body["stream"] = context.stream;
    return body;
  }

  void ReadEvent(const SseEvent& event, const Json& data, Answer* answer) const override {
    std::string type = TextAt(data, "type");
    if (type.empty()) type = event.name;
    if (type == "response.output_text.delta" || type == "response.refusal.delta")
      answer->AddText(0, TextAt(data, "delta"));
    if (type == "response.reasoning_summary_text.delta" || type == "response.reasoning_text.delta")
      answer->AddReasoning(0, TextAt(data, "delta"));
    if (type == "error")
      answer->error = At(data, "error").is_object() ? ErrorIn(data) : ErrorIn(Json{{"error", data}});
    if (type == "response.completed" || type == "response.incomplete" || type == "response.failed")
      ReadEnd(At(data, "response"), answer);
  }

  void ReadBody(const Json& body, Answer* answer) const override {
    for (const Json& item : At(body, "output")) {
      const bool thought = TextAt(item, "type") == "reasoning";
      for (const char* list : {"content", "summary"}) {
        for (const Json& part : At(item, list)) {
          const std::string text = TextAt(part, "text") + TextAt(part, "refusal");
          thought ? answer->AddReasoning(0, text) : answer->AddText(0, text);
        }
      }
    }
    ReadEnd(body, answer);
  }

 private:
  static void ReadEnd(const Json& response, Answer* answer) {
    answer->model = TextAt(response, "model");
    answer->id = TextAt(response, "id");
    ReadUsage(At(response, "usage"), answer);
    if (At(response, "error").is_object()) answer->error = ErrorIn(response);
    const std::string status = TextAt(response, "status");
    const std::string why = TextAt(At(response, "incomplete_details"), "reason");
    StopReason reason = status == "completed" ? StopReason::kStop : StopReason::kUnknown;
    if (why == "max_output_tokens") reason = StopReason::kLength;
    if (why == "content_filter") reason = StopReason::kFiltered;
    answer->Stop(0, reason, why.empty() ? status : why);
    answer->done = true;
  }

  static void ReadUsage(const Json& usage, Answer* answer) {
    const auto input = IntegerAt(usage, "input_tokens"), output = IntegerAt(usage, "output_tokens");
    if (!input || !output) return;
    Usage result;
    result.prompt_tokens = *input;
    result.completion_tokens = *output;
    result.cached_tokens = IntegerAt(At(usage, "input_tokens_details"), "cached_tokens").value_or(0);
    result.reasoning_tokens = IntegerAt(At(usage, "output_tokens_details"), "reasoning_tokens").value_or(0);
    answer->usage = result;
  }
};

}  // namespace

std::unique_ptr<Wire> MakeResponsesWire() { return std::make_unique<ResponsesWire>(); }

}  // namespace kevin::remote
