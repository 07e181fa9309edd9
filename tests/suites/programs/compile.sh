# A program of several files is compiled, linked into a library and a binary, and run where it was made.
for name in one two three; do
  printf 'int %s(void) { return %d; }\n' $name ${#name} >$name.c
done
cat >main.c <<'C'
#include <stdio.h>
int one(void); int two(void); int three(void);
int main(void) { printf("%d\n", one() * 100 + two() * 10 + three()); return 0; }
C
for name in one two three main; do gcc -O1 -c -fPIC $name.c -o $name.o & done
wait
gcc -shared one.o two.o three.o -o libnumbers.so
gcc main.o -L. -lnumbers -Wl,-rpath,'$ORIGIN' -o program
./program
ar rcD numbers.a one.o two.o three.o && gcc -static main.o numbers.a -o static && ./static
cp program renamed && ./renamed
