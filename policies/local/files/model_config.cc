#include "policies/local/files/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "env/error.h"

namespace kevin::local {

namespace {

struct Row {
  NumberType type;
  const char* name;
  int bytes;
};

constexpr Row kTypes[] = {
    {NumberType::kBool, "BOOL", 1}, {NumberType::kU8, "U8", 1},          {NumberType::kI8, "I8", 1},
    {NumberType::kI16, "I16", 2},   {NumberType::kI32, "I32", 4},        {NumberType::kI64, "I64", 8},
    {NumberType::kF16, "F16", 2},   {NumberType::kF8E4M3, "F8_E4M3", 1}, {NumberType::kF8E5M2, "F8_E5M2", 1},
    {NumberType::kBF16, "BF16", 2}, {NumberType::kF32, "F32", 4},        {NumberType::kF64, "F64", 8}};

const Row& RowOf(NumberType type) {
  for (const Row& row : kTypes) {
    if (row.type == type) return row;
  }
  return kTypes[0];
}

}  // namespace

int BytesOf(NumberType type) { return RowOf(type).bytes; }

const char* NameOf(NumberType type) { return RowOf(type).name; }

std::optional<NumberType> NumberTypeNamed(const std::string& name) {
  for (const Row& row : kTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

std::string ReadModelFile(const std::filesystem::path& file, size_t most_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw Error(ExitCode::kBadRequest, file.string() + ": no such file",
                "Give the folder of a Hugging Face model.");
  }
  if (!std::filesystem::is_regular_file(status))
    throw Error(ExitCode::kBadRequest, file.string() + ": no file");
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > most_bytes) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: {} MB, and at most {} MB make sense here",
                                                   file.string(), size / 1'000'000, most_bytes / 1'000'000));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(error ? 0 : static_cast<size_t>(size), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (error || !stream) throw Error(ExitCode::kBadRequest, file.string() + ": cannot be read");
  return text;
}

nlohmann::json ReadModelJson(const std::filesystem::path& file, size_t most_bytes) {
  const std::string text = ReadModelFile(file, most_bytes);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& problem) {
    const size_t byte = std::min(problem.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
    std::string reason = problem.what();
    if (const size_t end = reason.rfind("; last read"); end != std::string::npos) reason.resize(end);
    if (const size_t begin = reason.find(": "); begin != std::string::npos) reason = reason.substr(begin + 2);
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: line {}, byte {}: no JSON: {}", file.string(), line, problem.byte, reason),
                "Was the file copied whole?");
  }
}

namespace {

constexpr char kFamilies[] = "known are qwen2 (Qwen2, Qwen2.5, QwQ), qwen3, qwen3_moe and llama (Llama 3)";

ModelFamily FamilyOf(const ConfigFields& fields) {
  const std::string type = fields.Text("model_type", "");
  if (type == "qwen2") return ModelFamily::kQwen2;
  if (type == "qwen3") return ModelFamily::kQwen3;
  if (type == "qwen3_moe") return ModelFamily::kQwen3Moe;
  if (type == "llama") return ModelFamily::kLlama;
  fields.Refuse("model_type", fmt::format("unknown architecture; {}", kFamilies),
                "choose a model of these families");
}

NumberType DtypeOf(const ConfigFields& fields) {
  const std::string field = fields.Has("dtype") ? "dtype" : "torch_dtype";
  std::string name = fields.Text(field, "float32");
  if (name.rfind("torch.", 0) == 0) name = name.substr(6);
  if (name == "bfloat16") return NumberType::kBF16;
  if (name == "float16") return NumberType::kF16;
  if (name == "float32") return NumberType::kF32;
  fields.Refuse(field, "supported are bfloat16, float16 and float32");
}

double Positive(const ConfigFields& fields, const std::string& field, double otherwise) {
  const double value = fields.Number(field, otherwise);
  if (!(value > 0)) fields.Refuse(field, "must be greater than 0");
  return value;
}

void ReadYarn(const ConfigFields& fields, RopeConfig& rope, int context) {
  rope.original_context = Positive(fields, "original_max_position_embeddings", context);
  rope.beta_fast = Positive(fields, "beta_fast", 32);
  rope.beta_slow = Positive(fields, "beta_slow", 1);
  rope.truncate = fields.Bool("truncate", true);
  rope.mscale = fields.Number("mscale", 0);
  rope.mscale_all_dimensions = fields.Number("mscale_all_dim", 0);
  if (fields.Has("attention_factor")) rope.attention_factor = Positive(fields, "attention_factor", 1);
}

// `fields`: rope_scaling of transformers 4, or rope_parameters of 5.
void ReadScaling(const ConfigFields& fields, RopeConfig& rope, int context) {
  const std::string type_field = fields.Has("rope_type") ? "rope_type" : "type";
  const std::string type = fields.Text(type_field, "default");
  if (Positive(fields, "partial_rotary_factor", 1) != 1)
    fields.Refuse("partial_rotary_factor", "only 1 is supported");
  if (type == "default") return;
  rope.factor = Positive(fields, "factor", 0);
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.original_context = Positive(fields, "original_max_position_embeddings", 0);
    rope.low_frequency_factor = Positive(fields, "low_freq_factor", 0);
    rope.high_frequency_factor = Positive(fields, "high_freq_factor", 0);
    if (rope.high_frequency_factor <= rope.low_frequency_factor)
      fields.Refuse("high_freq_factor", "must be greater than low_freq_factor");
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
    ReadYarn(fields, rope, context);
  } else {
    fields.Refuse(type_field, "unknown scaling of positions; supported are default, linear, llama3 and yarn");
  }
}

RopeConfig ReadRope(const ConfigFields& fields, int context) {
  RopeConfig rope;
  rope.theta = Positive(fields, "rope_theta", 10000);
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!fields.Has(field)) continue;
    const ConfigFields scaling = fields.Object(field);
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      if (scaling.Has(kind)) scaling.Refuse(kind, "rotary parameters per kind of layer are not supported");
    }
    rope.theta = Positive(scaling, "rope_theta", rope.theta);
    ReadScaling(scaling, rope, context);
  }
  return rope;
}

void RefuseUnsupported(const ConfigFields& fields, const ModelConfig& config) {
  if (fields.Text("hidden_act", "silu") != "silu") fields.Refuse("hidden_act", "only silu is supported");
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    if (fields.Bool(field, false)) fields.Refuse(field, "biases other than qwen2's are not supported");
  }
  if (fields.Number("attention_dropout", 0) != 0)
    fields.Refuse("attention_dropout", "dropout is not supported");
  if (fields.Number("partial_rotary_factor", 1) != 1)
    fields.Refuse("partial_rotary_factor", "only 1 is supported");
  if (fields.Has("quantization_config"))
    fields.Refuse("quantization_config", "weights that are quantised already are not supported",
                  "load the original weights, with --quantization int8 or nf4");
  for (const std::string& type : fields.Texts("layer_types")) {
    if (type != "full_attention") fields.Refuse("layer_types", "only full_attention is supported");
  }
  if (!fields.Has("layer_types") && fields.Bool("use_sliding_window", false) &&
      fields.Has("sliding_window") && fields.Int("max_window_layers", 28) < config.layers)
    fields.Refuse("use_sliding_window", "sliding windows are not supported",
                  "set it to false if the context stays within the window");
}

void ReadExperts(const ConfigFields& fields, ModelConfig& config) {
  config.experts = fields.Has("num_experts") ? fields.Int("num_experts") : fields.Int("num_local_experts");
  config.experts_per_token = fields.Int("num_experts_per_tok");
  config.expert_ffn = fields.Int("moe_intermediate_size");
  config.normalize_expert_weights = fields.Bool("norm_topk_prob", false);
  if (config.experts_per_token > config.experts)
    fields.Refuse("num_experts_per_tok", fmt::format("there are {} experts", config.experts));
  const int step = fields.Int("decoder_sparse_step", 1);
  const std::vector<int32_t> dense = fields.Ints("mlp_only_layers");
  for (int layer = 0; layer < config.layers; ++layer) {
    const bool is_dense = std::find(dense.begin(), dense.end(), layer) != dense.end();
    config.is_sparse.push_back(!is_dense && (layer + 1) % step == 0);
  }
}

void ReadShape(const ConfigFields& fields, ModelConfig& config) {
  config.hidden = fields.Int("hidden_size");
  config.layers = fields.Int("num_hidden_layers");
  config.heads = fields.Int("num_attention_heads");
  config.kv_heads = fields.Int("num_key_value_heads", config.heads);
  config.ffn = fields.Int("intermediate_size");
  config.vocabulary = fields.Int("vocab_size");
  config.norm_epsilon = Positive(fields, "rms_norm_eps", 1e-6);
  if (config.layers > 10000) fields.Refuse("num_hidden_layers", "more than 10000");
  if (config.heads % config.kv_heads != 0)
    fields.Refuse("num_attention_heads",
                  fmt::format("no multiple of num_key_value_heads ({})", config.kv_heads));
  const bool qwen3 = config.family == ModelFamily::kQwen3 || config.family == ModelFamily::kQwen3Moe;
  if (!fields.Has("head_dim") && !qwen3 && config.hidden % config.heads != 0)
    fields.Refuse("hidden_size", fmt::format("no multiple of num_attention_heads ({})", config.heads));
  // The default of Qwen3 is not hidden / heads.
  const int head_dim = config.family == ModelFamily::kQwen3 ? 128 : config.hidden / config.heads;
  config.head_dim = fields.Int("head_dim", std::max(1, head_dim));
  if (config.head_dim % 2 != 0) fields.Refuse("head_dim", "must be even");
}

GenerationDefaults ReadGeneration(const ConfigFields& fields, GenerationDefaults before) {
  if (fields.Has("eos_token_id")) before.end_tokens = fields.Ints("eos_token_id");
  const std::vector<int32_t> begin = fields.Ints("bos_token_id"), pad = fields.Ints("pad_token_id");
  if (!begin.empty()) before.begin_token = begin[0];
  if (!pad.empty()) before.pad_token = pad[0];
  if (fields.Has("temperature")) before.temperature = static_cast<float>(fields.Number("temperature"));
  if (fields.Has("top_p")) before.top_p = static_cast<float>(fields.Number("top_p"));
  if (fields.Has("min_p")) before.min_p = static_cast<float>(fields.Number("min_p"));
  const std::vector<int32_t> top_k = fields.Ints("top_k");
  if (!top_k.empty()) before.top_k = top_k[0];
  before.sample = fields.Bool("do_sample", before.sample);
  return before;
}

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    throw Error(ExitCode::kBadRequest, path.string() + " cannot be read", "give a Hugging Face model folder");
  return text.str();
}

}  // namespace

ModelConfig ParseModelConfig(const std::string& config_json, const std::string& generation_json,
                             const std::string& name) {
  const ConfigFields fields = ConfigFields::Parse(config_json, name);
  ModelConfig config;
  config.family = FamilyOf(fields);
  ReadShape(fields, config);
  const int positions = fields.Int("max_position_embeddings");
  config.rope = ReadRope(fields, positions);
  // Folders with YaRN name the length before scaling, others the length after it.
  const bool yarn = config.rope.scaling == RopeConfig::Scaling::kYarn;
  const double scaled = yarn ? config.rope.original_context * config.rope.factor : 0;
  config.context = std::max(positions, static_cast<int>(std::min(scaled, 1e9)));
  RefuseUnsupported(fields, config);
  config.tied_embeddings = fields.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.family == ModelFamily::kQwen2;
  config.qk_norm = config.family == ModelFamily::kQwen3 || config.family == ModelFamily::kQwen3Moe;
  if (config.family == ModelFamily::kQwen3Moe) ReadExperts(fields, config);
  config.dtype = DtypeOf(fields);
  GenerationDefaults tokens;
  tokens.end_tokens = fields.Ints("eos_token_id");
  const std::vector<int32_t> begin = fields.Ints("bos_token_id"), pad = fields.Ints("pad_token_id");
  if (!begin.empty()) tokens.begin_token = begin[0];
  if (!pad.empty()) tokens.pad_token = pad[0];
  config.generation = tokens;
  if (!generation_json.empty())
    config.generation =
        ReadGeneration(ConfigFields::Parse(generation_json, "generation_config.json"), tokens);
  return config;
}

ModelConfig ReadModelConfig(const std::filesystem::path& model_folder) {
  const std::filesystem::path config = model_folder / "config.json";
  const std::filesystem::path generation = model_folder / "generation_config.json";
  if (!std::filesystem::exists(config))
    throw Error(ExitCode::kBadRequest, config.string() + " does not exist",
                "give a Hugging Face model folder");
  return ParseModelConfig(ReadText(config), std::filesystem::exists(generation) ? ReadText(generation) : "",
                          config.string());
}

namespace {

constexpr double kPi = 3.14159265358979323846;

// Low frequencies are divided by the factor, high ones kept, those between interpolated.
double Llama3(double frequency, const RopeConfig& rope) {
  const double turns = rope.original_context * frequency / (2 * kPi);  // within the original context
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  if (turns > rope.high_frequency_factor) return frequency;
  const double share =
      (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - share) * frequency / rope.factor + share * frequency;
}

// The pair (as a real number) that makes `turns` full rotations within the original context.
double PairThatTurns(double turns, const RopeConfig& rope, int head_dim) {
  return head_dim * std::log(rope.original_context / (turns * 2 * kPi)) / (2 * std::log(rope.theta));
}

std::vector<double> YarnFrequencies(const std::vector<double>& plain, const RopeConfig& rope, int head_dim) {
  double low = PairThatTurns(rope.beta_fast, rope, head_dim);
  double high = PairThatTurns(rope.beta_slow, rope, head_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<double> frequencies;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies.push_back(stretched * plain[i] / rope.factor + (1 - stretched) * plain[i]);
  }
  return frequencies;
}

double YarnAttention(const RopeConfig& rope) {
  const auto factor = [&](double scale) {
    return rope.factor <= 1 ? 1 : 0.1 * scale * std::log(rope.factor) + 1;
  };
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dimensions != 0)
    return factor(rope.mscale) / factor(rope.mscale_all_dimensions);
  return factor(1);
}

}  // namespace

RopeFrequencies FrequenciesOf(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  std::vector<double> frequencies;
  for (int i = 0; i < config.head_dim; i += 2) {
    double frequency = std::pow(rope.theta, -static_cast<double>(i) / config.head_dim);
    if (rope.scaling == RopeConfig::Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeConfig::Scaling::kLlama3) frequency = Llama3(frequency, rope);
    frequencies.push_back(frequency);
  }
  RopeFrequencies result;
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    frequencies = YarnFrequencies(frequencies, rope, config.head_dim);
    result.attention_factor = static_cast<float>(YarnAttention(rope));
  }
  for (const double frequency : frequencies) result.frequencies.push_back(static_cast<float>(frequency));
  return result;
}

}  // namespace kevin::local
