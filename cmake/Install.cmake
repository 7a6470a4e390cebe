# SPDX-License-Identifier: Apache-2.0
# The library, its public headers, a CMake package (find_package(vkformer) gives vkformer::vkformer,
# its components text and mpi vkformer::text and vkformer::mpi) and a pkg-config file.
include(CMakePackageConfigHelpers)

# Where installed programs find the library.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}")
    set(VKFORMER_INSTALL_RPATH "${CMAKE_INSTALL_FULL_LIBDIR}")
else()
    file(RELATIVE_PATH VKFORMER_INSTALL_RPATH "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}")
    string(PREPEND VKFORMER_INSTALL_RPATH "$ORIGIN/")
endif()

install(TARGETS vkformer EXPORT vkformer
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES "${PROJECT_BINARY_DIR}/include/vkformer/vkformer.h" "${PROJECT_BINARY_DIR}/include/vkformer/vkformer_c.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer")
foreach(header ${public_headers})
    get_filename_component(room "${header}" DIRECTORY)
    install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer/${room}")
endforeach()
foreach(header ${advanced_headers})
    get_filename_component(name "${header}" NAME)
    install(FILES "${PROJECT_BINARY_DIR}/advanced/${name}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer/advanced")
endforeach()

set(VKFORMER_COMPONENTS "")
if(TARGET vkformer_text)
    install(TARGETS vkformer_text EXPORT vkformer-text
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(FILES "${PROJECT_BINARY_DIR}/include/vkformer/text.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer")
    install(FILES text/chat_template.h text/prompt.h text/tokenizer.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer/text")
    list(APPEND VKFORMER_COMPONENTS text)
    set(VKFORMER_TEXT_NEEDS pcre2 utf8proc)
    set(pc_text_needs "libpcre2-8 libutf8proc")
    set(pc_text_libs "")
    if(TARGET vkformer::sentencepiece)
        list(APPEND VKFORMER_TEXT_NEEDS sentencepiece)
        # not its pkg-config file, which in Debian 13 asks for one of protobuf's that it does not
        # bring along
        get_filename_component(sentencepiece_folder "${VKFORMER_sentencepiece_alone_LIBRARY}" DIRECTORY)
        if(NOT sentencepiece_folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
            string(APPEND pc_text_libs " -L${sentencepiece_folder}")
        endif()
        string(APPEND pc_text_libs " -lsentencepiece")
        if(VKFORMER_sentencepiece_compiles_with_absl)
            string(APPEND pc_text_needs " absl_status absl_strings")
        endif()
    endif()
    string(REPLACE ";" " " VKFORMER_TEXT_NEEDS "${VKFORMER_TEXT_NEEDS}")
endif()

if(TARGET vkformer_mpi)
    install(TARGETS vkformer_mpi EXPORT vkformer-mpi
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
    install(FILES "${PROJECT_BINARY_DIR}/include/vkformer/mpi.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer")
    install(FILES parallel/mpi/mpi_transport.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vkformer/parallel/mpi")
    list(APPEND VKFORMER_COMPONENTS mpi)
endif()

# what a program in C alone has to be linked with
set(cxx_runtime ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER cxx_runtime INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|m)$")
list(REMOVE_DUPLICATES cxx_runtime)
list(JOIN cxx_runtime " " VKFORMER_CXX_RUNTIME)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/vkformer")
install(EXPORT vkformer NAMESPACE vkformer:: DESTINATION "${package_dir}" FILE vkformer-targets.cmake)
foreach(component ${VKFORMER_COMPONENTS})
    install(EXPORT vkformer-${component} NAMESPACE vkformer:: DESTINATION "${package_dir}"
        FILE vkformer-${component}-targets.cmake)
endforeach()
string(REPLACE ";" " " VKFORMER_COMPONENTS "${VKFORMER_COMPONENTS}")
configure_package_config_file(cmake/vkformer-config.cmake.in "${PROJECT_BINARY_DIR}/vkformer-config.cmake"
    INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/vkformer-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES cmake/TextDependencies.cmake DESTINATION "${package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/vkformer-config.cmake" "${PROJECT_BINARY_DIR}/vkformer-config-version.cmake"
    DESTINATION "${package_dir}")

if(VKFORMER_RUNTIME_GLSLANG AND NOT BUILD_SHARED_LIBS)
    return()  # glslang's own pkg-config files do not name all of what it needs
endif()
# Paths in the file start at the file itself, so that the installed tree may be moved, unless they
# were given as absolute ones.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
    file(RELATIVE_PATH pc_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
    string(PREPEND pc_prefix "\${pcfiledir}/")
endif()
foreach(folder INCLUDE LIB)
    string(TOLOWER "pc_${folder}dir" path)
    set(${path} "${CMAKE_INSTALL_${folder}DIR}")
    if(NOT IS_ABSOLUTE "${${path}}")
        string(PREPEND ${path} "\${prefix}/")
    endif()
endforeach()
if(BUILD_SHARED_LIBS)
    set(pc_cflags "-DVKFORMER_SHARED")
    set(pc_libs "")
    set(pc_libs_private "")
else()
    set(pc_cflags "")
    set(pc_libs "-pthread")
    if(CMAKE_DL_LIBS)
        string(APPEND pc_libs " -l${CMAKE_DL_LIBS}")
    endif()
    # with pkg-config --static
    list(TRANSFORM cxx_runtime PREPEND " -l")
    list(JOIN cxx_runtime "" cxx_runtime)
    set(pc_libs_private "Libs.private:${cxx_runtime}")
endif()
configure_file(cmake/vkformer.pc.in vkformer.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/vkformer.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(TARGET vkformer_text)
    set(pc_text_requires "Requires: vkformer = ${PROJECT_VERSION} ${pc_text_needs}")
    set(pc_text_private_libs "")
    if(BUILD_SHARED_LIBS)
        set(pc_text_requires "Requires: vkformer = ${PROJECT_VERSION}\nRequires.private: ${pc_text_needs}")
        set(pc_text_private_libs "Libs.private:${pc_text_libs}")
        set(pc_text_libs "")
    endif()
    configure_file(cmake/vkformer-text.pc.in vkformer-text.pc @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/vkformer-text.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
