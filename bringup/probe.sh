# Reads one machine and writes JSON Lines: one object per command as it ends, then {"done": N}.
# POSIX sh only (dash, bash, busybox ash). Writes nothing but a private folder under /dev/shm.
# Every command runs in the background and is abandoned at its limit, never waited for.
# All of it is functions; the last line starts it, so that a script cut in the middle does nothing.

# now: centiseconds of uptime in $now, without a fork.
now() {
  read -r now _ </proc/uptime || now=0.00
  case $now in
    0.0*) now=${now#0.0} ;;
    0.*) now=${now#0.} ;;
    *) now=${now%.*}${now#*.} ;;
  esac
}

# born PID: start time of a living process in $born, empty when it is gone or a zombie. /proc/PID/stat, field 22.
born() {
  born=
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  # shellcheck disable=SC2086 # split on purpose; the name in brackets, which may hold blanks, is cut off first
  set -- ${stat##*) }
  [ "$1" = Z ] || [ "$1" = X ] || born=${20}
}

# base64 of a file as one line; empty files cost no fork.
encode() {
  [ -s "$1" ] || return 0
  if [ -n "$wide" ]; then base64 -w 0 "$1"; else base64 "$1" | tr -d '\n'; fi
}

# emit ID RC MS: the object of one command, its output taken from the folder.
emit() {
  printf '{"id":"%s","rc":%s,"ms":%s,"out":"' "$1" "$2" "$3"
  encode "$dir/$1.out"
  printf '","err":"'
  encode "$dir/$1.err"
  printf '"}\n'
  count=$((count + 1))
}

# said ID RC TEXT: an object whose only content is a sentence of ours.
said() {
  printf '%s\n' "$3" >"$dir/$1.err"
  : >"$dir/$1.out"
  emit "$1" "$2" 0
}

# earlier GROUP: describes in $earlier a living child of an earlier probe that belongs to GROUP.
earlier() {
  earlier=
  for file in /dev/shm/lockstep-probe.*/*.pid; do
    [ -O "$file" ] && [ "${file%/*}" != "$dir" ] || continue
    read -r kind pid start name <"$file" 2>/dev/null || continue
    [ "$kind" = "$1" ] || continue
    born "$pid"
    [ -n "$born" ] && [ "$born" = "$start" ] || continue
    # Another probe at work is no leftover: its own shell still lives and will judge its child.
    read -r pid start <"${file%/*}/shell" 2>/dev/null && born "$pid" && [ "$born" = "$start" ] && continue
    earlier="$name of an earlier reading still runs (pid ${file##*/}"
    earlier="${earlier%.pid})"
    return
  done
}

# sweep: removes folders of earlier probes in which nothing lives any more.
sweep() {
  for old in /dev/shm/lockstep-probe.*; do
    [ -O "$old" ] && [ -d "$old" ] && [ ! -h "$old" ] && [ "$old" != "$dir" ] || continue
    alive=
    # A probe that has only just made its folder is known by its name.
    if [ ! -f "$old/shell" ]; then
      pid=${old#*.}
      [ ! -d "/proc/${pid%.*}" ] || continue
    fi
    for file in "$old"/*.pid; do
      [ -f "$file" ] || continue
      read -r _ pid start _ <"$file" 2>/dev/null || continue
      born "$pid"
      if [ -n "$born" ] && [ "$born" = "$start" ]; then alive=1; fi
    done
    if read -r pid start <"$old/shell" 2>/dev/null; then
      born "$pid"
      if [ -n "$born" ] && [ "$born" = "$start" ]; then alive=1; fi
    fi
    [ -n "$alive" ] || rm -rf "$old"
  done
}

# run ID GROUP LIMIT COMMAND…: LIMIT in centiseconds.
run() {
  id=$1 group=$2 limit=$3
  shift 3
  now
  if [ "$now" -ge "$finish" ]; then
    said "$id" -3 "not started: the time of the whole reading was spent"
    return
  fi
  earlier "$group"
  if [ -n "$earlier" ]; then
    said "$id" -2 "not started: $earlier"
    return
  fi
  if ! command -v "$1" >/dev/null; then
    said "$id" 127 "$1: not found"
    return
  fi
  begun=$now
  end=$((begun + limit))
  [ "$end" -le "$finish" ] || end=$finish
  # The subshell waits for the command and says so in the pipe; nobody waits for the subshell.
  (
    ulimit -c 0
    ulimit -f "$blocks" 2>/dev/null
    "$@" 3>&- &
    child=$!
    born "$child"
    printf '%s %s %s %s\n' "$group" "$child" "$born" "$1" >"$dir/$child.pid"
    wait "$child"
    rc=$?
    rm -f "$dir/$child.pid"
    printf 'end %s %s\n' "$id" "$rc" >&3
  ) >"$dir/$id.out" 2>"$dir/$id.err" </dev/null &
  while read -r word name rc <&3; do
    now
    if [ "$word $name" = "end $id" ]; then
      emit "$id" "$rc" $(((now - begun) * 10))
      return
    fi
    if [ "$now" -ge "$end" ]; then
      abandon "$id" $(((end - begun) * 10))
      return
    fi
  done
}

# abandon ID LIMIT: asks the command to go, waits for nothing, and says that it did not answer.
abandon() {
  for file in "$dir"/*.pid; do
    [ -f "$file" ] || continue
    read -r _ pid start _ <"$file" 2>/dev/null || continue
    born "$pid"
    if [ "$born" = "$start" ]; then kill -KILL "$pid" 2>/dev/null; fi
  done
  printf '{"id":"%s","rc":-1,"ms":%s,"out":"","err":""}\n' "$1" "$2"
  count=$((count + 1))
}

# finish: ends the ticker; removes the folder unless a stuck command holds it.
finish() {
  trap - EXIT
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null
  for file in "$dir"/*.pid; do
    [ -f "$file" ] || continue
    read -r _ pid start _ <"$file" 2>/dev/null || continue
    born "$pid"
    if [ -n "$born" ] && [ "$born" = "$start" ]; then
      rm -f "$dir"/*.out "$dir"/*.err "$dir/pipe"
      return
    fi
  done
  rm -rf "$dir"
}

# show FILE…: contents by builtins: "@NAME", then its lines, each behind a blank; "!NAME" unreadable, "-NAME" absent.
show() {
  for name; do
    if [ -r "$name" ] && [ ! -d "$name" ]; then
      printf '@%s\n' "$name"
      { while IFS= read -r line || [ -n "$line" ]; do printf ' %s\n' "$line"; done <"$name"; } 2>/dev/null
    elif [ -e "$name" ]; then
      printf '!%s\n' "$name"
    else
      printf -- '-%s\n' "$name"
    fi
  done
}

read_host() {
  show /proc/sys/kernel/random/boot_id /etc/os-release /proc/driver/nvidia/version /sys/module/nvidia/version \
    /sys/module/amdgpu/version /usr/local/cuda/version.json /usr/local/cuda/version.txt /proc/cmdline \
    /sys/class/dmi/id/product_name /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_serial \
    /sys/class/dmi/id/chassis_serial /sys/class/dmi/id/board_serial /sys/class/dmi/id/bios_version \
    /proc/device-tree/serial-number /var/lib/lockstep/admission.json
  while IFS= read -r line; do
    case $line in Uid:*) printf '@uid\n %s\n' "$line" ;; esac
  done </proc/self/status
  printf '@kernels\n'
  for name in /boot/vmlinuz-*; do [ -e "$name" ] && printf ' %s\n' "${name#/boot/vmlinuz-}"; done
  if [ -h /vmlinuz ] || [ -h /boot/vmlinuz ]; then
    printf '@link\n'
    for name in /vmlinuz /boot/vmlinuz; do
      if [ -h "$name" ]; then printf ' %s\n' "$(readlink "$name")"; fi
    done
  fi
}

read_kernel() { uname -r && uname -m; }

read_boot() {
  if command -v grub-editenv >/dev/null; then grub-editenv - list; fi
  if command -v grub2-editenv >/dev/null; then grub2-editenv - list; fi
}

# The chassis serial by the firmware's table, for machines whose sysfs gives none.
read_serial() {
  for name in product chassis board; do
    if { IFS= read -r line <"/sys/class/dmi/id/${name}_serial"; } 2>/dev/null && [ -n "$line" ]; then return; fi
  done
  if command -v dmidecode >/dev/null; then dmidecode -s system-serial-number; fi
}

# read_packages: what the package database holds of $packages, tab separated: name, version, state, architecture.
read_packages() {
  # shellcheck disable=SC2086 # a list of names and patterns, made for splitting
  if command -v dpkg-query >/dev/null; then
    echo '#dpkg'
    set -f
    dpkg-query -W -f '${Package}\t${Version}\t${db:Status-Abbrev}\t${Architecture}\n' $packages 2>/dev/null
  elif command -v rpm >/dev/null; then
    echo '#rpm'
    set -f
    rpm -q --qf '%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\tii\t%{ARCH}\n' $packages 2>/dev/null
  else
    echo 'neither dpkg nor rpm' >&2
    return 127
  fi
  return 0
}

read_module() {
  command -v modinfo >/dev/null || { echo 'modinfo: not found' >&2; return 127; }
  modinfo -F version nvidia || return
  modinfo -F license nvidia
}

# The module for each installed kernel that does not run now: a boot into one without it comes up without GPUs.
read_next_modules() {
  current=$(uname -r)
  for name in /boot/vmlinuz-*; do
    name=${name#/boot/vmlinuz-}
    if [ "$name" = "$current" ] || [ "$name" = '*' ]; then continue; fi
    printf '%s %s\n' "$name" "$(modinfo -k "$name" -F version nvidia 2>/dev/null)"
  done
}

# read_nccl: the library that the loader finds, by its real file and the string inside it.
read_nccl() {
  found=
  if command -v ldconfig >/dev/null; then found=$(ldconfig -p 2>/dev/null | sed -n 's/.*libnccl\.so\.2 .*=> //p;'); fi
  [ -n "$found" ] || for name in /usr/lib/*/libnccl.so.2 /usr/lib64/libnccl.so.2 /usr/local/lib/libnccl.so.2; do
    if [ -e "$name" ]; then found=$name && break; fi
  done
  [ -n "$found" ] || return 0
  IFS='
'
  # shellcheck disable=SC2086 # one path a line; the first is the loader's choice
  set -- $found
  real=$(readlink -f "$1") || real=$1
  printf '%s\n' "$real"
  grep -a . /dev/null >/dev/null 2>&1
  if [ $? -le 1 ]; then
    grep -a -o -m 1 'NCCL version [0-9][0-9A-Za-z.+-]*' "$real"
  else
    grep -o -m 1 'NCCL version [0-9][0-9A-Za-z.+-]*' "$real"
  fi
}

# read_holders: processes that hold a GPU device ("PID NAME PROGRAM"), and our daemons of interest ("=PID NAME PROGRAM").
read_holders() {
  # shellcheck disable=SC2012 # one ls for all processes; names of devices hold no odd characters
  ls -l /proc/[0-9]*/fd 2>/dev/null |
    sed -n -e '/^\/proc\//{h;d;}' -e '/ -> \/dev\/nvidia/{g;p;}' -e '/ -> \/dev\/kfd/{g;p;}' |
    {
      last=
      while IFS= read -r line; do
        line=${line#/proc/}
        pid=${line%%/*}
        [ "$pid" != "$last" ] || continue
        last=$pid
        name='?'
        { IFS= read -r name <"/proc/$pid/comm"; } 2>/dev/null
        printf '%s %s %s\n' "$pid" "$name" "$(readlink "/proc/$pid/exe")"
      done
    }
  for file in /proc/[0-9]*/comm; do
    { IFS= read -r name <"$file"; } 2>/dev/null || continue
    case $name in
      nv-fabricmanage* | nvidia-imex | nvlsm | nv-hostengine | kubelet)
        pid=${file#/proc/}
        pid=${pid%/comm}
        printf '=%s %s %s\n' "$pid" "$name" "$(readlink "/proc/$pid/exe")"
        ;;
    esac
  done
  printf 'end\n'
}

# prepare: the private folder, the pipe in it, and the ticker that wakes the reader once a second.
prepare() {
  umask 077
  LC_ALL=C
  PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  export LC_ALL PATH
  count=0
  ticker=
  command -v base64 >/dev/null || { echo "base64 is missing" >&2; return 1; }
  dir=$(mktemp -d "/dev/shm/lockstep-probe.$$.XXXXXXXX") || return
  trap finish EXIT
  trap 'exit 1' HUP INT TERM PIPE
  born $$
  printf '%s %s\n' $$ "$born" >"$dir/shell"
  sweep
  wide=
  if base64 -w 0 /dev/null >/dev/null 2>&1; then wide=1; fi
  # Blocks of 512 bytes in POSIX shells, of 1,024 in bash outside its POSIX mode.
  if [ -n "${BASH_VERSION-}" ] && [ -z "${POSIXLY_CORRECT-}" ]; then blocks=$((bytes / 1024)); else blocks=$((bytes / 512)); fi
  mkfifo "$dir/pipe" || return
  exec 3<>"$dir/pipe"
  now
  finish=$((now + total))
  (
    # It ends by itself, should this shell be killed.
    ticks=$((total / 100 + 2))
    while [ "$ticks" -gt 0 ] && sleep 1; do
      ticks=$((ticks - 1))
      echo tick >&3
    done
  ) >/dev/null 2>&1 </dev/null &
  ticker=$!
}
