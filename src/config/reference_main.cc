// Prints docs/configuration.md: lockstep_config_reference > docs/configuration.md
#include <cstdio>

#include "lockstep/config/load.h"

int main() { return std::fputs(lockstep::config_reference().c_str(), stdout) < 0 ? 1 : 0; }
