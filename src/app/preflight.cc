#include "app/preflight.h"

#include <gnu/libc-version.h>

#include <algorithm>
#include <utility>

#include "app/host_facts.h"
#include "app/version.h"
#include "lockstep/backend/cpu_library.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/parameter_audit.h"
#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "lockstep/io/hdf5.h"

namespace lockstep {
namespace {

// For comparing bytes over ranks.
std::string digest_text(std::span<const std::byte> bytes) { return fmt::format("{:016x}", hash_bytes(bytes)); }

std::string executable_digest() {
  try {
    return digest_text(read_file("/proc/self/exe", ExitCode::internal));
  } catch (const Error& error) {
    return fmt::format("unknown: {}", error.what());
  }
}

// The program, its libraries, the processor and the configuration of this rank.
std::vector<Fact> program_facts(const Config& config) {
  const std::string text = to_toml(config);
  const std::string same_everywhere = "install the same version on every host";
  return {{"program", fmt::format("Lockstep {} (build {})", LOCKSTEP_VERSION, executable_digest()), ExitCode::config,
           "start the same trainer on every host"},
          {"configuration", digest_text(std::as_bytes(std::span(text))), ExitCode::internal,
           "every rank works with what rank 0 read; this is a bug"},
          {"MPI", mpi_version(), ExitCode::config, same_everywhere},
          {"HDF5", hdf5_version(), ExitCode::ok, same_everywhere},
          {"CPU kernels", cpu_library_version(), ExitCode::ok,
           same_everywhere + ": results differ in their last bits, and one rank may be slower"},
          {"C library", fmt::format("glibc {}", ::gnu_get_libc_version()), ExitCode::ok, same_everywhere},
          {"processor", processor_name(), ExitCode::ok,
           "the slowest processor sets the pace; prefer hosts of one kind (Slurm: --constraint)"}};
}

// Collective. Returns the network interfaces that are requested but missing on some ranks, each once.
std::vector<Finding> network_findings(ProcessGroup& group, const Timeout& wait) {
  const std::string mine =
      fmt::format("{}", fmt::join(missing_interfaces(process_environment(), network_interfaces()), "; "));
  std::vector<Finding> findings;
  for (const std::string& what : merge_texts(group, group.all_gather(mine, wait))) {
    findings.push_back(
        {.blame = ExitCode::ok,
         .what = what,
         .advice = "name an interface that every host has ('ip -brief address'), or unset the variable"});
  }
  return findings;
}

}  // namespace

std::string text_of(const Finding& finding) {
  return finding.advice.empty() ? finding.what : fmt::format("{}; what to do: {}", finding.what, finding.advice);
}

DataIdentity identity_of(const DataSource& source) {
  constexpr int64_t kSamples = 16;
  std::vector<uint64_t> hashes;
  Sample sample;
  const int64_t count = std::min(kSamples, source.size());
  for (int64_t i = 0; i < count; ++i) {
    try {
      source.read(i * source.size() / count, sample);
    } catch (const BadRecord&) {
      hashes.push_back(0);  // data.bad_records decides later what happens to bad records
      continue;
    }
    hashes.push_back(hash_bytes(sample.bytes));
    hashes.push_back(hash_bytes(std::as_bytes(std::span(sample.ids))));
    hashes.push_back(hash_bytes(std::as_bytes(std::span(sample.values))));
    hashes.push_back(static_cast<uint64_t>(sample.label));
  }
  return {.samples = source.size(), .digest = hash_bytes(std::as_bytes(std::span(hashes)))};
}

Fact identity_fact(const std::string& name, const DataIdentity& identity) {
  return {name, fmt::format("{} samples, digest {:016x}", identity.samples, identity.digest), ExitCode::data,
          "give every rank the same files under the same paths"};
}

std::vector<Fact> model_facts(const ModelSetup& setup) {
  const ParameterTable& parameters = setup.model->parameters();
  std::string schema;
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    schema += parameters[id].name + parameters[id].shape.to_string() + "\n";
  }
  return {{"model",
           fmt::format("{} parameters, digest {}", parameters.trained_elements(),
                       digest_text(std::as_bytes(std::span(schema)))),
           ExitCode::config, "start the same trainer with the same configuration on every host"},
          {"device", std::string(setup.backend->name()), ExitCode::config,
           "set device.kind, or mend the ranks without one"}};
}

std::string program_line(std::span<const FactRow> rows) {
  std::string line;
  for (const FactRow& row : rows) {
    if (row.fact.name != "configuration") line += (line.empty() ? "" : ", ") + row.values.front();
  }
  return line;
}

Comparison compare_ranks(ProcessGroup& group, const Timeout& wait, const std::vector<Fact>& facts) {
  Comparison result{.rows = gather_facts(group, wait, facts)};
  for (const FactRow& row : result.rows) {
    if (auto found = difference(row, group.hosts())) result.findings.push_back(std::move(*found));
  }
  return result;
}

Comparison compare_programs(const Config& config, ProcessGroup& group) {
  const Timeout wait{"the comparison of programs"};
  const std::vector<Finding> of_network = network_findings(group, wait);
  Comparison result = compare_ranks(group, wait, program_facts(config));
  result.findings.insert(result.findings.begin(), of_network.begin(), of_network.end());
  return result;
}

void act_on(const Finding& finding, const ProcessGroup& group) {
  if (finding.blame != ExitCode::ok) throw AgreedError(finding.blame, text_of(finding));
  if (group.is_root()) log_warning("{}", text_of(finding));
}

}  // namespace lockstep
