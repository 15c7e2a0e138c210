#include "policies/local/generate/scheduler.h"

#include <algorithm>

namespace kevin::local {

size_t PagePool::KeyHash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.before) * 0x9E3779B97F4A7C15;
  for (const int32_t token : key.tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xD6E8FEB86659FD93;
    hash ^= hash >> 32;
  }
  return hash;
}

PagePool::PagePool(int pages, int page_tokens)
    : page_tokens_(page_tokens), pages_(static_cast<size_t>(pages)) {
  for (int page = pages; page-- > 0;) free_.push_back(page);
}

int PagePool::Take() {
  int page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (!unused_.empty()) {
    page = unused_.front();
    unused_.pop_front();
    Page& taken = pages_[static_cast<size_t>(page)];
    known_.erase(*taken.key);
    taken.key = nullptr;
  } else {
    return -1;
  }
  pages_[static_cast<size_t>(page)].users = 1;
  return page;
}

void PagePool::Release(int page) {
  Page& released = pages_[static_cast<size_t>(page)];
  if (--released.users > 0) return;
  if (released.key == nullptr) {
    free_.push_back(page);
  } else {
    released.unused = unused_.insert(unused_.end(), page);
  }
}

std::optional<PagePool::Found> PagePool::Find(Content before, std::span<const int32_t> tokens) {
  const auto found = known_.find({before, {tokens.begin(), tokens.end()}});
  if (found == known_.end()) return std::nullopt;
  Page& page = pages_[static_cast<size_t>(found->second.page)];
  if (page.users++ == 0) unused_.erase(page.unused);
  return found->second;
}

PagePool::Content PagePool::Register(int page, Content before, std::span<const int32_t> tokens) {
  const auto [known, is_new] =
      known_.try_emplace({before, {tokens.begin(), tokens.end()}}, Found{page, last_content_ + 1});
  if (is_new) {
    ++last_content_;
    pages_[static_cast<size_t>(page)].key = &known->first;
  }
  return known->second.content;
}

void PagePool::ForgetAll() {
  for (const int page : unused_) {
    pages_[static_cast<size_t>(page)].key = nullptr;
    free_.push_back(page);
  }
  unused_.clear();
  known_.clear();
}

Scheduler::Scheduler(const ModelRunner::Shape& shape)
    : shape_(shape), pool_(shape.pages, shape.page_tokens) {}

void Scheduler::Add(SequencePointer sequence) {
  const int64_t number = sequence->number;
  waiting_.emplace(number, std::move(sequence));
}

void Scheduler::End(Sequence& sequence) {
  sequence.has_ended = true;
  GivePagesBack(sequence);
  sequence.is_running = false;
  running_.erase(sequence.number);
  waiting_.erase(sequence.number);
}

void Scheduler::DrawnTokenArrived(Sequence& sequence, int32_t id) {
  --sequence.unseen;
  sequence.tokens.push_back(id);
  RegisterFullPages(sequence);
}

Plan Scheduler::Next() {
  Plan plan;
  budget_ = shape_.step_tokens;
  ++step_;
  AddDecodes(&plan);
  AddPrompts(&plan);
  // Registered after planning: a step cannot read pages that it computes itself.
  for (const SequenceStep& step : plan.steps) {
    if (const auto sequence = running_.find(step.sequence); sequence != running_.end())
      RegisterFullPages(*sequence->second);
  }
  if (plan.steps.empty()) --step_;
  return plan;
}

// --- Running answers ---

bool Scheduler::CanDraw(const Sequence& s) const {
  if (s.Length() >= s.most_tokens) return false;
  if (s.unseen == 0) return true;
  return s.last_step == step_ - 1 && !s.processor;
}

void Scheduler::AddDecodes(Plan* plan) {
  std::vector<SequencePointer> ready;
  for (const auto& [number, sequence] : running_) {
    if (sequence->Length() - sequence->run == 1 && CanDraw(*sequence)) ready.push_back(sequence);
  }
  for (const SequencePointer& sequence : ready) {
    if (budget_ == 0 || static_cast<int>(plan->steps.size()) == shape_.step_sequences) return;
    if (sequence->is_running && GrowByOnePage(*sequence)) AddStep(sequence, 1, plan);
  }
}

// Takes the page of the next token, preempting the youngest if needed. False: it was the youngest itself.
bool Scheduler::GrowByOnePage(Sequence& sequence) {
  while (static_cast<int>(sequence.pages.size()) < PagesFor(sequence.run + 1)) {
    if (const int page = pool_.Take(); page >= 0) {
      sequence.pages.push_back(page);
      continue;
    }
    Sequence& youngest = *running_.rbegin()->second;
    Preempt(youngest);
    if (&youngest == &sequence) return false;
  }
  return true;
}

void Scheduler::Preempt(Sequence& sequence) {
  ++preemptions_;
  GivePagesBack(sequence);
  sequence.is_running = false;
  waiting_.insert(running_.extract(sequence.number));
}

void Scheduler::ForgetAll() {
  while (!running_.empty()) Preempt(*running_.rbegin()->second);
  pool_.ForgetAll();
}

// Last page first, so that the end of a text is evicted before its beginning, without which it is useless.
void Scheduler::GivePagesBack(Sequence& sequence) {
  for (; !sequence.pages.empty(); sequence.pages.pop_back()) pool_.Release(sequence.pages.back());
  sequence.contents.clear();
  sequence.run = 0;
}

// --- Prompts, and preempted answers ---

void Scheduler::AddPrompts(Plan* plan) {
  std::vector<SequencePointer> filling;
  int tokens = 0;
  for (const auto& [number, sequence] : running_) {
    if (sequence->unseen > 0 || sequence->Length() - sequence->run < 2) continue;
    filling.push_back(sequence);
    tokens += std::min(budget_, sequence->Length() - sequence->run);
  }
  Admit(tokens, &filling, plan);
  const size_t places = static_cast<size_t>(shape_.step_sequences) - plan->steps.size();
  filling.resize(std::min(filling.size(), places));
  // Each takes at most half of the remaining tokens while others wait; the rest goes to the oldest.
  std::vector<int> shares;
  for (size_t i = 0; i < filling.size(); ++i) {
    const int most = i + 1 < filling.size() ? (budget_ + 1) / 2 : budget_;
    shares.push_back(std::min(most, filling[i]->Length() - filling[i]->run));
    budget_ -= shares.back();
  }
  for (size_t i = 0; i < filling.size(); ++i) {
    const int more = std::min(budget_, filling[i]->Length() - filling[i]->run - shares[i]);
    budget_ -= more;
    shares[i] += more;
  }
  for (const int share : shares) budget_ += share;
  for (size_t i = 0; i < filling.size(); ++i) {
    if (shares[i] > 0) AddStep(filling[i], shares[i], plan);
  }
}

// Twice as many as the step can start; it then takes a part of them.
void Scheduler::Admit(int tokens, std::vector<SequencePointer>* filling, Plan* plan) {
  for (auto next = waiting_.begin(); next != waiting_.end() && tokens < 2 * budget_;) {
    if (running() == shape_.step_sequences) return;
    const SequencePointer sequence = next->second;
    const Admission admission = TryToAdmit(sequence, plan);
    if (admission == Admission::kNoPages) return;
    ++next;
    if (admission == Admission::kLater) continue;
    sequence->is_running = true;
    running_.insert(waiting_.extract(sequence->number));
    filling->push_back(sequence);
    tokens += std::min(budget_, sequence->Length() - sequence->run);
  }
}

Scheduler::Admission Scheduler::TryToAdmit(const SequencePointer& pointer, Plan* plan) {
  Sequence& sequence = *pointer;
  if (sequence.unseen > 0) return Admission::kLater;
  if (const auto other = sequence.waits_for.lock()) {
    if (other->is_running && other->run < other->prompt_tokens) return Admission::kLater;
    sequence.waits_for.reset();
  }
  // Leaves one page for each running sequence.
  const int spare = pool_.available() - running();
  if (!running_.empty() && spare <= 0) return Admission::kNoPages;
  FindPages(sequence);
  if (MustWait(sequence)) {
    GivePagesBack(sequence);
    return Admission::kLater;
  }
  const int missing = PagesFor(sequence.Length()) - static_cast<int>(sequence.pages.size());
  if (missing > pool_.available() - running()) {
    if (!running_.empty() || missing > pool_.available()) {
      GivePagesBack(sequence);
      return Admission::kNoPages;
    }
  }
  for (int i = 0; i < missing; ++i) sequence.pages.push_back(pool_.Take());
  CopyFromFirst(sequence, plan);
  if (!sequence.was_admitted) sequence.cached_tokens = sequence.run;
  sequence.was_admitted = true;
  return Admission::kDone;
}

// Finds cached pages. The last token is always run, because its logits give the next one.
void Scheduler::FindPages(Sequence& sequence) {
  PagePool::Content content = 0;
  while ((static_cast<int>(sequence.pages.size()) + 1) * shape_.page_tokens < sequence.Length()) {
    const auto found = pool_.Find(content, PageOf(sequence, sequence.pages.size()));
    if (!found) break;
    content = found->content;
    sequence.pages.push_back(found->page);
    sequence.contents.push_back(content);
  }
  sequence.run = static_cast<int>(sequence.pages.size()) * shape_.page_tokens;
}

// Whether another sequence is about to compute the next page, or the prompt of the first answer.
bool Scheduler::MustWait(Sequence& sequence) const {
  const auto first = sequence.first.lock();
  if (first != nullptr && first->is_running && first->run < first->prompt_tokens) {
    sequence.waits_for = first;
    return true;
  }
  const size_t index = sequence.contents.size();
  const auto next = PageOf(sequence, index);
  if (next.empty() || sequence.run + shape_.page_tokens >= sequence.Length()) return false;
  for (const auto& [number, other] : running_) {
    if (other->run >= other->prompt_tokens || other->contents.size() < index) continue;
    if (index > 0 && other->contents[index - 1] != sequence.contents[index - 1]) continue;
    const auto same = PageOf(*other, index);
    if (!std::equal(same.begin(), same.end(), next.begin(), next.end())) continue;
    sequence.waits_for = other;
    return true;
  }
  return false;
}

// Copies the first answer's partial page of the prompt; from then on each answer writes its own.
void Scheduler::CopyFromFirst(Sequence& sequence, Plan* plan) {
  const auto first = sequence.first.lock();
  const int wanted = sequence.prompt_tokens - 1;
  if (first == nullptr || !first->is_running || first->run < sequence.prompt_tokens) return;
  if (sequence.run >= wanted || wanted - sequence.run >= shape_.page_tokens) return;
  const size_t index = static_cast<size_t>(sequence.run / shape_.page_tokens);
  plan->copies.emplace_back(first->pages[index], sequence.pages[index]);
  sequence.run = wanted;
}

// --- Both ---

void Scheduler::AddStep(const SequencePointer& pointer, int tokens, Plan* plan) {
  Sequence& sequence = *pointer;
  SequenceStep step;
  if (sequence.unseen == 0)
    step.tokens =
        std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.run), static_cast<size_t>(tokens));
  step.sequence = sequence.number;
  step.position = sequence.run;
  step.pages = std::span(sequence.pages).first(static_cast<size_t>(PagesFor(sequence.run + tokens)));
  step.sample = sequence.run + tokens == sequence.Length();
  step.sampling = sequence.sampling;
  if (step.sample && sequence.processor) step.processor = &sequence.processor;
  plan->steps.push_back(step);
  sequence.last_step = step_;
  sequence.run += tokens;
  budget_ -= tokens;
  run_tokens_ += tokens;
  if (!step.sample) return;
  ++sequence.unseen;
  plan->drawing.push_back(pointer);
}

void Scheduler::RegisterFullPages(Sequence& sequence) {
  const int known = std::min(sequence.run, static_cast<int>(sequence.tokens.size()));
  while ((static_cast<int>(sequence.contents.size()) + 1) * shape_.page_tokens <= known) {
    const size_t index = sequence.contents.size();
    const PagePool::Content before = index == 0 ? 0 : sequence.contents.back();
    sequence.contents.push_back(pool_.Register(sequence.pages[index], before, PageOf(sequence, index)));
  }
}

// The tokens of a page; empty if they do not fill it.
std::span<const int32_t> Scheduler::PageOf(const Sequence& sequence, size_t index) const {
  const size_t size = static_cast<size_t>(shape_.page_tokens);
  if ((index + 1) * size > sequence.tokens.size()) return {};
  return std::span(sequence.tokens).subspan(index * size, size);
}

}  // namespace kevin::local
