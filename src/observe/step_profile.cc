#include "lockstep/observe/step_profile.h"

namespace lockstep {

StepProfile::~StepProfile() {
  if (running_) observe_spans(nullptr);
}

void StepProfile::start() {
  if (span_observer()) return;
  running_ = true;
  mark(0);
  observe_spans(this);
}

void StepProfile::stop() {
  if (!running_) return;
  observe_spans(nullptr);
  running_ = false;
  mark(0);
}

void StepProfile::begin(const char* name) noexcept {
  if (std::this_thread::get_id() != thread_) return;
  // Steps are numbered, but are all of one kind.
  const bool step = open_.size() == 1 && std::string_view(name).starts_with("step ");
  const auto [place, made] = inner_.try_emplace({open_.back(), step ? "step" : name}, kinds_.size());
  if (made) {
    SpanTime kind{.path = kinds_[open_.back()].path};
    kind.path.push_back(place->first.second);
    kinds_.push_back(std::move(kind));
  }
  ++kinds_[place->second].count;
  open_.push_back(place->second);
  mark(open_.back());
}

void StepProfile::end() noexcept {
  if (std::this_thread::get_id() != thread_ || open_.size() == 1) return;
  open_.pop_back();
  mark(open_.back());
}

void StepProfile::mark(size_t kind) {
  marks_.push_back({backend_.make_timed_event(), kind});
  stream_.record(*marks_.back().event);
}

std::vector<SpanTime> StepProfile::times() {
  stream_.wait();
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    kinds_[marks_[i].kind].seconds += marks_[i + 1].event->seconds_since(*marks_[i].event);
  }
  marks_.clear();
  return std::move(kinds_);
}

}  // namespace lockstep
