# SPDX-License-Identifier: Apache-2.0
# A text file as a C string: cmake -DFROM=file -DTO=file.c -DHEADER=... -DNAME=...
# -P embed.cmake
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes
       "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${TO}
     "#include \"${HEADER}\"\n\nconst char ${NAME}[] = {\n${bytes}0\n};\n")
