// What the kernel and the environment say of this process's host: for the tables of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/supervision/launcher.h"

namespace lockstep {

std::string processor_name();

struct NetworkInterface {
  std::string name;
  std::string address;  // IPv4 or IPv6, as text
};
// Interfaces that are up and have an address, the loopback too, in the kernel's order.
std::vector<NetworkInterface> network_interfaces();

// The variables in force that say how MPI and NCCL travel, as "NAME=value", sorted.
std::vector<std::string> network_variables();

// The interfaces that a variable asks for and that this host does not have, as messages.
std::vector<std::string> missing_interfaces(const EnvironmentLookup& environment,
                                            std::span<const NetworkInterface> interfaces);

}  // namespace lockstep
