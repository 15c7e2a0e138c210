#include "agent/attribution/shaping.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "trajectories/figures.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// --- Matching blocks ---

class Matcher {
 public:
  Matcher(std::string_view a, std::string_view b)
      : a_(a), b_(b), lengths_(b.size() + 1), next_(b.size() + 1) {
    for (size_t j = 0; j < b.size(); ++j) places_[static_cast<unsigned char>(b[j])].push_back(j);
  }

  size_t Matches() {
    size_t total = 0;
    std::vector<std::array<size_t, 4>> open = {{0, a_.size(), 0, b_.size()}};
    while (!open.empty()) {
      const auto [a_low, a_high, b_low, b_high] = open.back();
      open.pop_back();
      const Block block = Longest(a_low, a_high, b_low, b_high);
      if (block.size == 0) continue;
      total += block.size;
      if (a_low < block.a && b_low < block.b) open.push_back({a_low, block.a, b_low, block.b});
      if (block.a + block.size < a_high && block.b + block.size < b_high)
        open.push_back({block.a + block.size, a_high, block.b + block.size, b_high});
    }
    return total;
  }

 private:
  struct Block {
    size_t a = 0, b = 0, size = 0;
  };

  // lengths_[j + 1]: of the common block that ends at the current byte of a and at b[j].
  Block Longest(size_t a_low, size_t a_high, size_t b_low, size_t b_high) {
    Block best{a_low, b_low, 0};
    std::vector<size_t> set, set_next;
    for (size_t i = a_low; i < a_high; ++i) {
      set_next.clear();
      const std::vector<size_t>& places = places_[static_cast<unsigned char>(a_[i])];
      for (auto j = std::lower_bound(places.begin(), places.end(), b_low); j != places.end() && *j < b_high;
           ++j) {
        const size_t length = (*j > b_low ? lengths_[*j] : 0) + 1;
        next_[*j + 1] = length;
        set_next.push_back(*j + 1);
        if (length > best.size) best = {i + 1 - length, *j + 1 - length, length};
      }
      for (const size_t at : set) lengths_[at] = 0;
      for (const size_t at : set_next) lengths_[at] = std::exchange(next_[at], 0);
      set.swap(set_next);
    }
    for (const size_t at : set) lengths_[at] = 0;
    return best;
  }

  std::string_view a_, b_;
  std::array<std::vector<size_t>, 256> places_;  // of each byte in b
  std::vector<size_t> lengths_, next_;
};

// --- The fastest kernels ---

struct Best {
  double speedup = 0;
  size_t episode = 0;  // index into Figures::episodes
  std::string source;
};

// By problem and kind: the fastest correct kernel, and the fastest of another episode.
using BestKernels = std::map<std::pair<int, std::string>, std::pair<Best, Best>>;

struct Texts {
  size_t episode = 0, turn = 0;  // indices of AttributedEpisode and its turns
  std::string source;
};

std::optional<int64_t> TokensOf(const TurnRecord& turn) {
  if (!turn.token_ids.empty()) return static_cast<int64_t>(turn.token_ids.size());
  return turn.usage.completion_tokens;
}

void Consider(Best candidate, std::pair<Best, Best>* best) {
  if (candidate.episode == best->first.episode && !best->first.source.empty()) {
    if (candidate.speedup > best->first.speedup) best->first = std::move(candidate);
  } else if (best->first.source.empty() || candidate.speedup > best->first.speedup) {
    best->second = std::exchange(best->first, std::move(candidate));
  } else if (best->second.source.empty() || candidate.speedup > best->second.speedup) {
    best->second = std::move(candidate);
  }
}

}  // namespace

double TagsReward(std::string_view reply, std::string_view reasoning) {
  bool has_reasoning = !reasoning.empty();
  constexpr std::pair<std::string_view, std::string_view> kTags[] = {{"<think>", "</think>"},
                                                                     {"<thinking>", "</thinking>"}};
  for (const auto& [open, close] : kTags) {
    const size_t begin = reply.find(open), end = reply.find(close);
    if (end == std::string_view::npos || (begin != std::string_view::npos && begin > end)) continue;
    has_reasoning = true;  // a chat template may have written the opening tag
    reply.remove_prefix(end + close.size());
  }
  if (!has_reasoning) return 0;
  const size_t open = reply.find("```");
  const bool has_block =
      open != std::string_view::npos && reply.find("\n```", open + 3) != std::string_view::npos;
  return has_block ? 1 : 0.5;
}

double SequenceRatio(std::string_view a, std::string_view b) {
  a = a.substr(0, kMostComparedBytes), b = b.substr(0, kMostComparedBytes);
  if (a.empty() && b.empty()) return 1;
  return 2.0 * static_cast<double>(Matcher(a, b).Matches()) / static_cast<double>(a.size() + b.size());
}

double StagedReward(std::string_view source, const std::string& kind, bool compiled) {
  if (source.empty() || !Contains(source, "triton") || (kind != "triton" && kind != "modelnew")) return 0;
  double points = compiled ? 30 : 0;
  if (Contains(source, "import triton\n") && Contains(source, "triton.language")) points += 15;
  if (Contains(source, "@triton.jit")) points += 15;
  int operations = 0;
  for (const char* operation : {"tl.program_id", "tl.arange", "tl.load", "tl.store", "tl.dot", "tl.sum",
                                "tl.max", "tl.exp", "tl.where", "tl.zeros"})
    operations += Contains(source, operation);
  points += 3 * std::min(operations, 5);
  if (Contains(source, "tl.constexpr")) points += 7.5;
  if (Contains(source, "](")) points += 7.5;
  return points / 90;
}

double OverlongReward(std::optional<int64_t> tokens, std::optional<int64_t> most_tokens, bool cut_off,
                      double cache) {
  if (cut_off) return -1;
  if (!tokens || !most_tokens || *most_tokens <= 0) return 0;
  const double most = static_cast<double>(*most_tokens), soft = most * cache;
  return std::clamp((most - soft - static_cast<double>(*tokens)) / soft, -1.0, 0.0);
}

bool HasShaping(const ScoreRule& rule) {
  return rule.tags != 0 || rule.similarity != 0 || rule.staged != 0 || rule.overlong != 0;
}

std::vector<AttributedEpisode> ToAttributed(const Figures& figures, const ScoreRule& rule, Store& store) {
  std::vector<AttributedEpisode> episodes = ToAttributed(figures);
  if (!HasShaping(rule)) return episodes;
  BestKernels best;
  std::vector<Texts> texts;
  for (size_t e = 0; e < episodes.size(); ++e) {
    const EpisodeFigures& episode = figures.episodes[e];
    std::map<int, TurnRecord> records;
    for (TurnRecord& turn : store.LoadTurns(episode.id)) records[turn.turn] = std::move(turn);
    size_t at = 0;
    for (size_t i = episode.first_turn; i < episode.first_turn + episode.turn_count; ++i) {
      if (figures.turns[i].turn == 0) continue;
      const TurnRecord& turn = records[figures.turns[i].turn];
      TurnFacts& one = episodes[e].turns[at];
      one.tags = TagsReward(turn.reply, turn.reasoning);
      one.staged = StagedReward(turn.evaluation.source, turn.evaluation.kind, one.compiled);
      one.overlong = OverlongReward(TokensOf(turn), turn.sampling.max_tokens, figures.turns[i].cut_off,
                                    rule.overlong_cache);
      if (rule.similarity != 0 && !turn.evaluation.source.empty()) {
        texts.push_back({e, at, turn.evaluation.source});
        if (one.correct && one.speedup > 0)
          Consider({one.speedup, e, turn.evaluation.source}, &best[{episode.problem, episode.kind}]);
      }
      ++at;
    }
  }
  for (const Texts& text : texts) {
    const EpisodeFigures& episode = figures.episodes[text.episode];
    const auto found = best.find({episode.problem, episode.kind});
    if (found == best.end()) continue;
    const Best& other =
        found->second.first.episode == text.episode ? found->second.second : found->second.first;
    if (!other.source.empty())
      episodes[text.episode].turns[text.turn].similarity = SequenceRatio(text.source, other.source);
  }
  return episodes;
}

}  // namespace kevin
