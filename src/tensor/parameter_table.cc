#include "lockstep/tensor/parameter_table.h"

#include <fnmatch.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

int64_t round_up(int64_t value) {
  return (value + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
}

// Returns how many characters of the pattern, which does not start with *, match `c`; 0: it does not match.
size_t matches_one(std::string_view pattern, char c) {
  size_t length = 1;
  if (pattern.starts_with('\\')) length = 2;
  if (pattern.starts_with('[')) length = pattern.find(']', pattern.starts_with("[!") ? 3 : 2) + 1;
  pattern = pattern.substr(0, std::max<size_t>(length, 1));
  return ::fnmatch(std::string(pattern).c_str(), std::string(1, c).c_str(), 0) == 0 ? pattern.size() : 0;
}

// Patterns may come from a checkpoint: fnmatch() alone would take exponential time in the number of asterisks.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, retry = std::string_view::npos, retry_at = 0;
  for (size_t n = 0; n < name.size();) {
    if (p < pattern.size() && pattern[p] == '*') {
      retry = ++p;
      retry_at = n;
    } else if (const size_t used = p < pattern.size() ? matches_one(pattern.substr(p), name[n]) : 0; used > 0) {
      p += used;
      ++n;
    } else if (retry != std::string_view::npos) {
      p = retry;
      n = ++retry_at;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

ParameterId ParameterTable::add(Parameter parameter) {
  const ParameterId id = size();
  const bool fresh = by_name_.emplace(parameter.name, id).second;
  require(fresh, "parameter \"{}\" is declared twice", parameter.name);
  parameters_.push_back(std::move(parameter));
  return id;
}

ParameterId ParameterTable::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

int64_t ParameterTable::trained_elements() const {
  int64_t sum = 0;
  for (const Parameter& p : parameters_) sum += p.trained() ? p.shape.elements() : 0;
  return sum;
}

int64_t ParameterTable::frozen_elements() const {
  int64_t sum = 0;
  for (const Parameter& p : parameters_) {
    sum += p.frozen && p.kind <= ParameterKind::norm_shift ? p.shape.elements() : 0;
  }
  return sum;
}

bool names_parameter(const std::string& pattern, const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (matches(pattern, std::string_view(name).substr(0, dot))) return true;
  }
  return matches(pattern, name);
}

bool names_parameter(std::span<const std::string> patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return names_parameter(pattern, name); });
}

void require_named(const std::vector<std::string>& names, const std::string& pattern, std::string_view key,
                   std::string_view what) {
  std::vector<std::string> candidates;
  for (const std::string& name : names) {
    if (names_parameter(pattern, name)) return;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      candidates.push_back(name.substr(0, dot));
    }
    candidates.push_back(name);
  }
  fail(ExitCode::config, "{}: \"{}\" matches no {} of the model{}", key, printable(pattern), what,
       did_you_mean(pattern, candidates));
}

std::vector<ParameterId> trained_in_table_order(const ParameterTable& table) {
  std::vector<ParameterId> order;
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (table[id].trained()) order.push_back(id);
  }
  return order;
}

ParameterLayout lay_out_parameters(const ParameterTable& table, std::span<const ParameterId> order,
                                   std::span<const std::vector<ParameterId>> groups) {
  ParameterLayout layout;
  layout.offset.assign(table.size(), -1);
  std::vector<const std::vector<ParameterId>*> group_of(layout.offset.size(), nullptr);
  for (const auto& group : groups) {
    for (ParameterId id : group) group_of[id] = &group;
  }
  auto place = [&](ParameterId id, int64_t& end) {
    int64_t& offset = layout.offset[id];
    require(offset < 0, "parameter \"{}\" is laid out twice", table[id].name);
    offset = end;
    end += table[id].shape.elements();
  };
  auto place_all = [&](std::span<const ParameterId> ids, int64_t& end) {
    for (ParameterId id : ids) {
      const auto* group = group_of[id];
      if (group && id != group->front() && layout.offset[group->front()] >= 0) continue;
      end = round_up(end);
      if (!group) {
        place(id, end);
      } else if (layout.offset[group->front()] < 0) {
        for (ParameterId member : *group) place(member, end);
      }
    }
    end = round_up(end);
  };
  std::vector<ParameterId> following, constant;
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (!table[id].trained()) (table[id].follows_batches() ? following : constant).push_back(id);
  }
  place_all(order, layout.trained_elements);
  place_all(following, layout.statistic_elements);
  layout.moment_elements = layout.statistic_elements;
  place_all(constant, layout.statistic_elements);
  for (ParameterId id = 0; id < table.size(); ++id) {
    require(layout.offset[id] >= 0, "parameter \"{}\" was not laid out", table[id].name);
  }
  return layout;
}

}  // namespace lockstep
