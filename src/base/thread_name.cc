#include "lockstep/base/thread_name.h"

#include <pthread.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {

void name_thread(const char* name) {
  require(::pthread_setname_np(::pthread_self(), name) != ERANGE, "'{}' is too long a name for a thread", name);
}

}  // namespace lockstep
