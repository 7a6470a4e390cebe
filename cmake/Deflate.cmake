# SPDX-License-Identifier: Apache-2.0
# deflate(FILE OUT) gives the deflated bytes of a file as the elements of a C++ array.
function(deflate file out)
    # A gzip file (RFC 1952) has a header of 10 bytes, of which the fourth tells whether the name of
    # the file follows; then what was deflated; then 8 bytes of checksum and length. These stay: the
    # decoder reads ahead, and stb_image 2.27 takes an end within its last 16 bits for damage.
    file(ARCHIVE_CREATE OUTPUT "${file}.gz" PATHS "${file}" FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
    file(READ "${file}.gz" code HEX)
    string(SUBSTRING "${code}" 6 2 flags)
    set(start 20)
    if(flags STREQUAL "08")
        set(byte "")
        while(NOT byte STREQUAL "00")
            string(SUBSTRING "${code}" ${start} 2 byte)
            math(EXPR start "${start} + 2")
        endwhile()
    elseif(NOT flags STREQUAL "00")
        message(FATAL_ERROR "the header of ${file}.gz has the flags ${flags}, which are not known here")
    endif()
    string(SUBSTRING "${code}" ${start} -1 code)
    string(REGEX REPLACE "(................................)" "\\1\n" code "${code}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," code "${code}")
    set(${out} "${code}" PARENT_SCOPE)
endfunction()
