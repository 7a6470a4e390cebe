# SPDX-License-Identifier: Apache-2.0
# spirv_kinds(OP): what is made of the operands of an op: of the first, the second, the third, and
# of all others.
macro(spirv_kinds op)
    set(how_${op}0 as_it_is)  # the type
    set(how_${op}1 result)
    set(how_${op}2 distance)
    set(how_${op}3 distance)
    if(${op} LESS 41 OR ${op} EQUAL 71 OR ${op} EQUAL 72)  # types, decorations: there is no result
        set(how_${op}1 as_it_is)
    endif()
    if(${op} EQUAL 62 OR (${op} GREATER 245 AND ${op} LESS 256))  # nor in OpStore, and control flow
        set(how_${op}0 distance)
        set(how_${op}1 distance)
    endif()
    if(${op} EQUAL 247)  # how OpSelectionMerge is controlled
        set(how_${op}1 as_it_is)
    endif()
    # Declarations and OpAccessChain name what is declared once, or what is no id. OpFunctionCall,
    # OpLoad and OpStore do not.
    if(${op} LESS 73 AND NOT ${op} EQUAL 57 AND NOT ${op} EQUAL 61 AND NOT ${op} EQUAL 62)
        set(how_${op}2 as_it_is)
        set(how_${op}3 as_it_is)
    endif()
    foreach(operand 0 1 2 3)
        list(APPEND kinds ${op}${operand})
        set(numbers_${op}${operand} "")
    endforeach()
    set(next_${op}0 ${op}1)
    set(next_${op}1 ${op}2)
    set(next_${op}2 ${op}3)
    set(next_${op}3 ${op}3)
endmacro()

# spirv_numbers(FILE OUT) gives the words of a SPIR-V module as the numbers that <PackedSpirv> in
# runtime/compile/spirv_code.h describes, which deflate to little more than half of what the words
# do.
function(spirv_numbers file out)
    file(READ "${file}" words HEX)
    string(SUBSTRING "${words}" 0 40 header)
    string(SUBSTRING "${words}" 40 -1 words)
    foreach(part header words)
        string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1;" ${part} "${${part}}")
    endforeach()
    string(REGEX REPLACE ";$" "" words "${words}")
    set(heads "")  # each instruction's first words
    set(kinds "")  # of operands, from OP0 to OP3: how_KIND tells what is made of it
    set(last 0)  # the result before
    set(left 0)  # words of the instruction
    foreach(word IN LISTS words)
        if(left EQUAL 0)
            string(APPEND heads "${word};")
            math(EXPR left "${word} >> 16")
            math(EXPR op "${word} & 0xffff")
            set(kind ${op}0)
            if(NOT DEFINED how_${kind})
                spirv_kinds(${op})
            endif()
        elseif(how_${kind} STREQUAL "as_it_is")
            string(APPEND numbers_${kind} "${word};")
            set(kind ${next_${kind}})
        else()
            if(how_${kind} STREQUAL "result")
                set(from "${word}")
                set(to "${last}")
                set(last "${word}")
            else()
                set(from "${last}")
                set(to "${word}")
            endif()
            # 0, -1, 1, -2, ... as 0, 1, 2, 3, ...
            math(EXPR distance "(${from} - ${to}) << 1 ^ (${from} - ${to}) >> 63" OUTPUT_FORMAT HEXADECIMAL)
            string(APPEND numbers_${kind} "${distance};")
            set(kind ${next_${kind}})
        endif()
        math(EXPR left "${left} - 1")
    endforeach()
    list(SORT kinds COMPARE NATURAL)
    set(text "${header}${heads}")
    foreach(kind IN LISTS kinds)
        string(APPEND text "${numbers_${kind}}")
    endforeach()
    set(letters g h i j k l m n o p q r s t u v)
    foreach(digit 1 2 3 4 5 6 7 8 9 a b c d e f 0)
        math(EXPR at "0x${digit}")
        list(GET letters ${at} letter)
        string(REGEX REPLACE "0x0*${digit}" "${letter}" text "${text}")
    endforeach()
    string(REPLACE ";" "" text "${text}")
    set(${out} "${text}" PARENT_SCOPE)
endfunction()
