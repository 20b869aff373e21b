// The text format of Prometheus, for the textfile collector of node_exporter.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lockstep {

// The latest value of each metric of a run. A plain value.
class PrometheusPage {
 public:
  PrometheusPage() = default;
  // `run` labels each sample, so that several runs of a host can be distinguished.
  explicit PrometheusPage(std::string run) : run_(std::move(run)) {}

  // Sets a sample of a metric in the table of prometheus.cc. `labels` are in addition to `run`: name="value", separated
  // by commas.
  void set(std::string_view metric, double value, const std::string& labels = {});

  // Returns the page: the metrics that have samples, in the order of the table.
  std::string text() const;

 private:
  std::string run_;
  std::map<std::string, std::map<std::string, double>, std::less<>> samples_;  // metric, labels, value
};

// Returns name="value" with the value escaped.
std::string prometheus_label(std::string_view name, std::string_view value);

}  // namespace lockstep
