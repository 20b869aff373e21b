# cmake --install: the program, the recipes with the data that they use, models as files, scripts, the Slurm files, licences.

include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/${PROJECT_NAME})

install(TARGETS trainer lockstep lockstep-run)
foreach(program trainer lockstep)
  install(FILES ${CMAKE_BINARY_DIR}/install/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/install/${program}.bash RENAME ${program}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endforeach()
if(LOCKSTEP_HAVE_CUDA)
  # Where the program looks for it, on every system (src/base/plugin.cc).
  install(TARGETS lockstep_cuda LIBRARY DESTINATION lib/${PROJECT_NAME} COMPONENT cuda)
endif()
install(DIRECTORY models/recipes/ DESTINATION ${share}/recipes FILES_MATCHING PATTERN "*.toml"
        PATTERN "digits.toml" EXCLUDE)
install(DIRECTORY models/definitions/ DESTINATION ${share}/models FILES_MATCHING PATTERN "*.toml")
install(DIRECTORY data/digits DESTINATION ${share}/data)
install(PROGRAMS scripts/plot.py scripts/to_mlflow.py DESTINATION ${share})
install(DIRECTORY scripts/slurm DESTINATION ${share})
install(FILES LICENSE NOTICE CITATION.cff CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${PROJECT_NAME})

# The installed recipe lies one directory nearer to its data.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS models/recipes/digits.toml)
file(READ models/recipes/digits.toml recipe)
string(REPLACE "\"../../data/" "\"../data/" recipe "${recipe}")
file(CONFIGURE OUTPUT install/digits.toml CONTENT "${recipe}" @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/install/digits.toml DESTINATION ${share}/recipes)
