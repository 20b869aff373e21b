#include "app/cli/class_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/csv.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

std::string part_of(int64_t some, int64_t all) {
  return all > 0 ? fmt::format("{:.4f}", static_cast<double>(some) / static_cast<double>(all)) : "-";
}

}  // namespace

ClassReport::ClassReport(int64_t classes, const std::vector<std::string>& names) : names_(names) {
  names_.resize(static_cast<size_t>(classes));
  for (int64_t i = 0; i < classes; ++i) {
    if (names_[i].empty()) names_[i] = fmt::format("{}", i);
    shown_.push_back(printable(names_[i], names_[i].size()));
  }
}

std::string ClassReport::table() const {
  std::vector<int64_t> samples(names_.size()), predictions(names_.size()), right(names_.size());
  for (const auto& [which, count] : counts_) {
    samples[which.first] += count;
    predictions[which.second] += count;
    if (which.first == which.second) right[which.first] += count;
  }
  size_t width = 5;
  for (const std::string& name : shown_) width = std::max(width, name.size());
  std::string text = fmt::format("{:{}}  precision  recall  support", "class", width);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (samples[i] + predictions[i] == 0) continue;
    text += fmt::format("\n{:{}}  {:>9}  {:>6}  {:7}", shown_[i], width, part_of(right[i], predictions[i]),
                        part_of(right[i], samples[i]), samples[i]);
  }
  return text;
}

std::string ClassReport::csv() const {
  std::string text = "label";
  for (const std::string& name : names_) text += fmt::format(",{}", csv_field(name));
  text += "\n";
  const auto classes = static_cast<int64_t>(names_.size());
  auto next = counts_.begin();  // in the order of rows and columns
  for (int64_t label = 0; label < classes; ++label) {
    text += csv_field(names_[label]);
    for (int64_t predicted = 0; predicted < classes; ++predicted) {
      const bool counted = next != counts_.end() && next->first == std::pair(label, predicted);
      text += fmt::format(",{}", counted ? next++->second : 0);
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
