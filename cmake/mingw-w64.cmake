# SPDX-License-Identifier: Apache-2.0
# Windows on x86-64, from any host with mingw-w64. std::thread needs the flavour with POSIX threads.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
find_program(VKFORMER_MINGW_CXX NAMES x86_64-w64-mingw32-g++-posix x86_64-w64-mingw32-g++ REQUIRED)
string(REPLACE "g++" "gcc" mingw_c "${VKFORMER_MINGW_CXX}")
set(CMAKE_C_COMPILER "${mingw_c}")
set(CMAKE_CXX_COMPILER "${VKFORMER_MINGW_CXX}")
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)  # programs run without the compiler's own DLLs beside them

set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
