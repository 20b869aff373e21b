#include "app/host_facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string_view>

#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  if (!bytes || !::inet_ntop(address.sa_family, bytes, text.data(), text.size())) return {};
  return text.data();
}

bool is_network_variable(std::string_view name) {
  for (const std::string_view prefix : {"OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_oob_tcp", "UCX_",
                                        "NCCL_", "PMIX_MCA_ptl", "PRTE_MCA_oob"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

std::string processor_name() {
  const std::string text = read_system_file("/proc/cpuinfo").value_or("");
  const std::string_view name = system_field(text, "model name");
  return name.empty() ? "unknown" : std::string(name);
}

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, ::freeifaddrs);
  std::vector<NetworkInterface> found;
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
    const std::string address = address_text(*i->ifa_addr);
    if (!address.empty()) found.push_back({i->ifa_name, address});
  }
  return found;
}

std::vector<std::string> network_variables() {
  std::vector<std::string> found;
  for (char** variable = environ; *variable; ++variable) {
    if (is_network_variable(*variable)) found.emplace_back(*variable);
  }
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> missing_interfaces(const EnvironmentLookup& environment,
                                            std::span<const NetworkInterface> interfaces) {
  std::vector<std::string> missing;
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "NCCL_SOCKET_IFNAME"}) {
    std::istringstream wanted(environment(name).value_or(""));
    for (std::string word; std::getline(wanted, word, ',');) {
      const bool is_network = word.find('/') != std::string::npos;  // 10.0.0.0/16
      if (word.empty() || word.front() == '^' || is_network) continue;
      const bool exact = word.front() == '=' || std::string_view(name).starts_with("OMPI");
      const std::string plain = word.front() == '=' ? word.substr(1) : word;
      const bool there = std::ranges::any_of(interfaces, [&](const NetworkInterface& i) {
        return exact ? i.name == plain : i.name.starts_with(plain);  // NCCL accepts prefixes
      });
      if (!there)
        missing.push_back(fmt::format("{}={} names {}, which is not up here", name, *environment(name), plain));
    }
  }
  return missing;
}

}  // namespace lockstep
