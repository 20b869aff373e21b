# Writes a header that names the commit of the sources; run by every build, so that the name is never an older one:
# cmake -DSOURCE=DIR -DOUTPUT=FILE -P write_commit.cmake. An archive made by `git archive` brings the name in commit.txt.

file(STRINGS ${SOURCE}/cmake/commit.txt commit LIMIT_COUNT 1)
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "unknown")
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND git -C ${SOURCE} --no-optional-locks status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit ", changed")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define LOCKSTEP_COMMIT \"${commit}\"\n")
