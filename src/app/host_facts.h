// Facts about the host of this process, from the kernel and the environment, for the tables of ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep {

std::string processor_name();

struct NetworkInterface {
  std::string name;
  std::string address;  // IPv4 or IPv6, as text
};
// Returns the interfaces that are up and have an address, including the loopback, in the kernel's order.
std::vector<NetworkInterface> network_interfaces();

// Returns the environment variables that select the networks of MPI and NCCL, as "NAME=value", sorted.
std::vector<std::string> network_variables();

// Returns a message for each interface that such a variable names and that this host does not have.
std::vector<std::string> missing_interfaces(const EnvironmentLookup& environment,
                                            std::span<const NetworkInterface> interfaces);

}  // namespace lockstep
