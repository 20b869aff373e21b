#pragma once

namespace lockstep {

// Makes waiting OpenMP threads sleep after they have spun for a moment. If ranks or other programs share the cores,
// long spinning made small kernels eight times slower; without any spinning, a step of Inception-v3 with batch 8 takes
// a tenth longer. The runtime reads OMP_WAIT_POLICY and GOMP_SPINCOUNT before main, so the process executes itself
// again with these variables, unless the user has set the first one. That takes 13 ms of processor time; a process on a
// single processor does not do it. Called before anything else.
void wait_passively(char** argv);

}  // namespace lockstep
