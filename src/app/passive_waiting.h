#pragma once

namespace lockstep {

// Makes OpenMP threads sleep instead of spin while they wait: with cores shared by ranks or neighbours, spinning made
// small kernels eight times slower. The runtime reads OMP_WAIT_POLICY before main, so the process executes itself once
// more with the variable set, unless the user has set it. To be called first of all.
void wait_passively(char** argv);

}  // namespace lockstep
