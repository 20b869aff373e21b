#pragma once

namespace lockstep {

// Makes OpenMP threads sleep while they wait, after a moment of spinning: with cores shared by ranks or neighbours,
// spinning on made small kernels eight times slower, while to sleep at once costs a step of Inception-v3 at batch 8 a
// tenth. The runtime reads OMP_WAIT_POLICY and GOMP_SPINCOUNT before main, so the process executes itself once more
// with them set, unless the user has set the first. To be called first of all.
void wait_passively(char** argv);

}  // namespace lockstep
