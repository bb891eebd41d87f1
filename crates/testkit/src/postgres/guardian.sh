# Ends a server and removes its directory ($1) when standard input ends: when the test closes it or
# dies.
data=$1/data

# Prints the processes whose working directory is the data directory: those of the server, frozen or
# not.
processes() {
  for process in /proc/[0-9]*; do
    if [ "$process/cwd" -ef "$data" ]; then echo "${process#/proc/}"; fi
  done
}

gone() {
  looks=0
  while [ -n "$(processes)" ]; do
    looks=$((looks + 1))
    if [ "$looks" -gt "$1" ]; then return 1; fi
    sleep 0.02
  done
}

read -r _

# Ask first: a server that ends by itself frees its shared memory.
postmaster=$(head -n 1 "$data/postmaster.pid" 2>/dev/null)
if [ -n "$postmaster" ] && [ "/proc/$postmaster/cwd" -ef "$data" ]; then
  kill -QUIT "$postmaster"
  kill -CONT $(processes)
fi
if ! gone 100; then
  kill -KILL $(processes)
  gone 100
fi

# If the file is still there, the server crashed; the file names the shared memory that was not
# freed.
memory=$(sed -n 's/^ *[0-9][0-9]*  *\([0-9][0-9]*\) *$/\1/p' "$data/postmaster.pid" 2>/dev/null)
if [ -n "$memory" ]; then ipcrm -m "$memory"; fi
rm -rf "$1"
