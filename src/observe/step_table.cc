#include "lockstep/observe/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/counted.h"

namespace lockstep {
namespace {

constexpr const char* kOther = "other";
constexpr const char* kBetweenSteps = "between steps";
constexpr const char* kBetweenOperations = "(between operations)";

// The part of a step to which spans named `span`, and the spans inside them, belong. The first match counts:
// synchronized batch norm waits for other ranks inside the passes.
struct PartSpan {
  const char* span;
  const char* part;
};
constexpr std::array kPartSpans = {PartSpan{"reduce", "all-reduce"}, PartSpan{"data", "data"},
                                   PartSpan{"save", "save"},         PartSpan{"update", "update"},
                                   PartSpan{"forward", "forward"},   PartSpan{"backward", "backward"}};
constexpr std::array kPartOrder = {"forward", "backward", "update", "all-reduce",
                                   "data",    "save",     kOther,   kBetweenSteps};

bool has_operations(std::string_view part) { return part == "forward" || part == "backward"; }

struct Place {
  const char* part;
  std::string name;  // of the span directly in the part; empty: none
};

Place place_of(const SpanTime& time) {
  if (time.path.empty() || time.path.front() != "step") return {kBetweenSteps, {}};
  // The span inside that of a pass has the name of its operation, which may equal any of these words.
  auto operation = std::ranges::find_if(time.path, has_operations);
  if (operation != time.path.end()) ++operation;
  for (const auto& [span, part] : kPartSpans) {
    auto at = std::ranges::find(time.path, span);
    if (at == operation && at != time.path.end()) at = std::find(at + 1, time.path.end(), span);
    if (at != time.path.end()) return {part, at + 1 == time.path.end() ? std::string() : time.path.back()};
  }
  return {kOther, {}};
}

struct Work {
  std::string operation, implementation;
  double operations = 0, bytes = 0;
};

// The work of one run of each node, by the name of its phase and its own.
std::map<std::pair<std::string, std::string>, Work> work_of_nodes(const Executable& executable,
                                                                  const Backend& backend) {
  std::map<std::pair<std::string, std::string>, Work> works;
  const Graph& graph = executable.graph();
  const auto& order = executable.schedule().order;
  for (size_t p = 0; p < order.size(); ++p) {
    const Node& node = graph.node(order[p]);
    Work& work = works[{node.phase == Phase::forward ? "forward" : "backward", node.name}];
    work.operation = op_name(node.op);
    work.implementation = executable.kernel(p).implementation();
    const int64_t products = multiply_adds(node.op, graph.descs(node.inputs), graph.descs(node.outputs));
    work.operations += 2 * static_cast<double>(products);
    if (products > 0) continue;
    for (const auto* operands : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *operands) work.bytes += static_cast<double>(backend.storage_bytes(graph.value(id).desc));
    }
  }
  return works;
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string percent(double part, double whole) { return fmt::format("{:.1f} %", 100 * share(part, whole)); }

std::string rate(const StepTableRow& row) {
  if (row.seconds <= 0) return {};
  if (row.operations > 0) return fmt::format("{:.1f} GFLOP/s", row.operations / row.seconds * 1e-9);
  return row.bytes > 0 ? fmt::format("{:.1f} GB/s", row.bytes / row.seconds * 1e-9) : std::string();
}

// Returns the share of the machine's highest rate, or nothing for rows without a rate.
std::optional<double> reached(const StepTableRow& row, const std::optional<MachineRates>& peak) {
  if (!peak || row.seconds <= 0) return std::nullopt;
  if (row.operations > 0) return row.operations / row.seconds / peak->operations_per_second;
  if (row.bytes > 0) return row.bytes / row.seconds / peak->bytes_per_second;
  return std::nullopt;
}

std::string line_of(const StepTableRow& row, const StepTable& table, const std::optional<MachineRates>& peak) {
  const std::optional<double> peak_share = reached(row, peak);
  return fmt::format("{:>10} {:>7} {:>15} {:>7}  {:<10} {:<44} {:<22} {}", milliseconds(row.seconds),
                     percent(row.seconds, table.seconds), rate(row), peak_share ? percent(*peak_share, 1) : "",
                     row.part, row.name, row.operation, row.implementation);
}

}  // namespace

StepTable make_step_table(std::span<const SpanTime> times, int64_t steps, const Executable& executable,
                          const Backend& backend) {
  const auto works = work_of_nodes(executable, backend);
  const auto count = static_cast<double>(steps);
  StepTable table{.steps = steps, .seconds = 0, .parts = {}, .rows = {}};
  for (const char* part : kPartOrder) table.parts.push_back({.name = part});
  std::map<std::pair<std::string, std::string>, StepTableRow> rows;
  for (const SpanTime& time : times) {
    const auto& [part, name] = place_of(time);
    const double seconds = time.seconds / count;
    table.seconds += seconds;
    std::ranges::find(table.parts, part, &StepTable::Part::name)->seconds += seconds;
    const auto work = works.find({part, name});
    StepTableRow& row = rows[{part, name}];
    row.part = part;
    row.name = !name.empty() ? name : has_operations(part) ? kBetweenOperations : part;
    row.seconds += seconds;
    if (work == works.end()) continue;
    const double runs = static_cast<double>(time.count) / count;
    row.operation = work->second.operation;
    row.implementation = work->second.implementation;
    row.operations += runs * work->second.operations;
    row.bytes += runs * work->second.bytes;
  }
  for (auto& [key, row] : rows) table.rows.push_back(std::move(row));
  std::ranges::sort(table.rows, std::ranges::greater{}, &StepTableRow::seconds);
  return table;
}

std::vector<std::string> to_lines(const StepTable& table, size_t most, const std::optional<MachineRates>& peak) {
  std::string parts;
  for (const StepTable::Part& part : table.parts) {
    if (part.seconds <= 0) continue;
    parts += fmt::format("{}{} {} ms ({})", parts.empty() ? "" : ", ", part.name, milliseconds(part.seconds),
                         percent(part.seconds, table.seconds));
  }
  std::vector<std::string> lines = {fmt::format("a step takes {} ms on rank 0 (mean of {}): {}",
                                                milliseconds(table.seconds), counted(table.steps, "step"), parts)};
  if (peak) {
    lines.push_back(fmt::format("this machine reaches {:.1f} GFLOP/s in a large product and {:.1f} GB/s in a large sum",
                                peak->operations_per_second * 1e-9, peak->bytes_per_second * 1e-9));
  }
  lines.push_back(fmt::format("{:>10} {:>7} {:>15} {:>7}  {:<10} {:<44} {:<22} {}", "ms", "share", "rate",
                              peak ? "of peak" : "", "part", "name", "operation", "implementation"));
  double rest = table.seconds;
  for (size_t i = 0; i < std::min(most, table.rows.size()); ++i) {
    lines.push_back(line_of(table.rows[i], table, peak));
    rest -= table.rows[i].seconds;
  }
  if (table.rows.size() > most) {
    lines.push_back(fmt::format("{:>10} {:>7} {:>15} {:>7}  {} more rows", milliseconds(rest),
                                percent(rest, table.seconds), "", "", table.rows.size() - most));
  }
  return lines;
}

std::string to_json(const StepTable& table, const std::optional<MachineRates>& peak) {
  nlohmann::ordered_json json = {{"steps", table.steps}, {"step_ms", table.seconds * 1e3}};
  if (peak) {
    json["peak"] = {{"gflop_per_second", peak->operations_per_second * 1e-9},
                    {"gbytes_per_second", peak->bytes_per_second * 1e-9}};
  }
  for (const StepTable::Part& part : table.parts) {
    json["parts"].push_back({{"part", part.name}, {"ms", part.seconds * 1e3}});
  }
  for (const StepTableRow& row : table.rows) {
    json["rows"].push_back({{"part", row.part},
                            {"name", row.name},
                            {"operation", row.operation},
                            {"implementation", row.implementation},
                            {"ms", row.seconds * 1e3},
                            {"gflop", row.operations * 1e-9},
                            {"gbytes", row.bytes * 1e-9}});
    if (const auto share_of_peak = reached(row, peak)) json["rows"].back()["of_peak"] = *share_of_peak;
  }
  return json.dump(1) + "\n";
}

}  // namespace lockstep
