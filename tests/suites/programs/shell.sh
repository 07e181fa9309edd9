# What scripts do all day: append, replace by rename, edit in place, sort onto itself, walk and remove.
for writer in 1 2 3 4; do
  (for n in $(seq 100); do echo "$writer $n" >>log; done) &
done
wait
sort -o log log && uniq -d log && wc -l <log
for n in $(seq 50); do echo "version $n" >new && mv new current; done
cat current
sed -i 's/version/edition/' current && cat current
mkdir -p a/b/c && for n in $(seq 200); do echo "$n" >a/b/c/$n; done
find a -type f | wc -l
mv a/b a/d && find a -name '1*' -delete && find a -type f | wc -l
cat a/d/c/* | sort -n | sha256sum
rm -r a/d/c && ls -A a/d
exec 5<>held && rm held && echo "kept open" >&5 && cat /proc/self/fd/5 && exec 5>&-
(cd a && mv d ../e && cd ../e && pwd | grep -o 'e$')
