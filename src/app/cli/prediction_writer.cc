#include "app/cli/prediction_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/cli/csv.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

[[noreturn]] void fail_unwritten() {
  fail(ExitCode::checkpoint, "standard output cannot be written: {}", std::strerror(errno));
}

}  // namespace

PredictionWriter::PredictionWriter(std::FILE* file, std::string format, std::vector<std::string> names, bool labels)
    : file_(file), format_(std::move(format)), names_(std::move(names)), labels_(labels) {
  for (const std::string& name : names_) width_ = std::max(width_, printable(name, name.size()).size());
}

std::string PredictionWriter::name_of(int64_t output) const {
  return output < std::ssize(names_) ? names_[output] : std::string();
}

void PredictionWriter::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail_unwritten();
}

void PredictionWriter::begin() {
  if (started_) return;
  started_ = true;
  if (format_ == "json") {
    write("[");
  } else if (format_ == "csv") {
    write(fmt::format("input,rank,class,name,probability{}\n", labels_ ? ",label" : ""));
  } else {
    write(fmt::format("probability  {:{}}  {}input\n", "class", width_, labels_ ? "label  " : ""));
  }
}

void PredictionWriter::add(const std::string& input, const Prediction& prediction) {
  begin();
  rank_ = prediction.sample == sample_ ? rank_ + 1 : 1;
  if (format_ == "json") {
    add_json(input, prediction);
  } else {
    add_row(input, prediction);
  }
  sample_ = prediction.sample;
}

void PredictionWriter::add_row(const std::string& input, const Prediction& prediction) {
  const auto& [sample, label, output, probability] = prediction;
  const std::string name = name_of(output);
  if (format_ == "csv") {
    write(fmt::format("{},{},{},{},{:.6f}{}\n", csv_field(input), rank_, output, csv_field(name), probability,
                      labels_ ? fmt::format(",{}", label) : ""));
  } else {
    write(fmt::format("{:11.4f}  {:{}}  {}{}\n", probability,
                      name.empty() ? fmt::format("{}", output) : printable(name, name.size()), width_,
                      labels_ ? fmt::format("{:5}  ", label) : "", printable(input, PATH_MAX)));
  }
}

// An object is left open until the next sample begins.
void PredictionWriter::add_json(const std::string& input, const Prediction& prediction) {
  if (rank_ == 1) {
    write(fmt::format("{}{{\"input\": {}, ", sample_ < 0 ? "\n" : "]},\n", json_text(input)));
    if (labels_) write(fmt::format("\"label\": {}, ", prediction.label));
    write("\"predictions\": [");
  }
  nlohmann::ordered_json row = {{"class", prediction.output}};
  if (const std::string name = name_of(prediction.output); !name.empty()) row["name"] = name;
  row["probability"] = std::round(prediction.probability * 1e6) / 1e6;
  write(fmt::format("{}{}", rank_ == 1 ? "" : ", ", json_text(row)));
}

void PredictionWriter::finish() {
  begin();
  if (format_ == "json") write(fmt::format("{}\n]\n", sample_ < 0 ? "" : "]}"));
  if (std::fflush(file_) != 0) fail_unwritten();
}

}  // namespace lockstep
