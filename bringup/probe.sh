# Reads one machine and writes JSON Lines: one object per command, then {"done": N}. Whole lines only, several at once:
# each write becomes a packet that somebody pays for a thousand times. None waits longer than the ticker's second.
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

# base64 of a file as one line.
encode() {
  if [ -n "$wide" ]; then base64 -w 0 "$1"; else base64 "$1" | tr -d '\n'; fi
}

# tell ID RC MS OUT ERR: adds one object to the answer.
tell() {
  answer="$answer{\"id\":\"$1\",\"rc\":$2,\"ms\":$3,\"out\":\"$4\",\"err\":\"$5\"}
"
  count=$((count + 1))
  [ ${#answer} -lt 65536 ] || send
}

# send: writes what the answer holds so far.
send() {
  if [ -z "$answer" ]; then
    return
  # bash writes every line by itself; a program does not.
  elif [ -n "${BASH_VERSION-}" ] && printf '%s' "$answer" >"$dir/answer"; then
    cat "$dir/answer"
  else
    printf '%s' "$answer"
  fi
  answer=
}

# emit ID RC MS: the object of one command, its output taken from the folder.
emit() {
  out='' err=''
  [ ! -s "$dir/$1.out" ] || out=$(encode "$dir/$1.out")
  [ ! -s "$dir/$1.err" ] || err=$(encode "$dir/$1.err")
  tell "$1" "$2" "$3" "$out" "$err"
}

# skip ID: the object of a command that has nothing to read here (no such program, no such device); costs no fork.
skip() {
  tell "$1" 127 0 "" ""
}

# said ID RC TEXT: an object whose only content is a sentence of ours.
said() {
  printf '%s\n' "$3" >"$dir/$1.err"
  : >"$dir/$1.out"
  emit "$1" "$2" 0
}

# at_work FOLDER: whether the probe that made it still runs; its children are no leftovers, it judges them itself.
at_work() {
  if { read -r pid start <"$1/shell"; } 2>/dev/null; then
    born "$pid"
    [ -n "$born" ] && [ "$born" = "$start" ]
  else
    # One that has only just made its folder, or the file in it and no line yet, is known by the folder's name.
    pid=${1#*lockstep-probe.}
    [ -d "/proc/${pid%%.*}" ]
  fi
}

# living FILE: whether the child that it tells of still lives; its group, number and name in $kind, $pid and $name.
living() {
  { read -r kind pid start name <"$1"; } 2>/dev/null || return
  born "$pid"
  [ -n "$born" ] && [ "$born" = "$start" ]
}

# earlier GROUP: describes in $earlier a living child of an earlier probe that belongs to GROUP.
earlier() {
  earlier=
  for old in /dev/shm/lockstep-probe.*; do
    if [ "$old" = "$dir" ] || [ ! -O "$old" ] || [ -h "$old" ] || at_work "$old"; then continue; fi
    for file in "$old"/*.pid; do
      if [ ! -O "$file" ] || ! living "$file" || [ "$kind" != "$1" ]; then continue; fi
      earlier="$name of an earlier reading still runs (pid ${file##*/}"
      earlier="${earlier%.pid})"
      return
    done
  done
}

# sweep: removes folders of earlier probes in which nothing lives any more.
sweep() {
  for old in /dev/shm/lockstep-probe.*; do
    if [ "$old" = "$dir" ] || [ ! -O "$old" ] || [ ! -d "$old" ] || [ -h "$old" ] || at_work "$old"; then continue; fi
    alive=
    for file in "$old"/*.pid; do
      if living "$file"; then alive=1; fi
    done
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
  if ! command -v "$1" >/dev/null; then
    skip "$id"
    return
  fi
  earlier "$group"
  if [ -n "$earlier" ]; then
    said "$id" -2 "not started: $earlier"
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
    # Emptied, not removed: that costs no fork, and an empty one names nobody.
    : >"$dir/$child.pid"
    printf 'end %s %s\n' "$id" "$rc" >&3
  ) >"$dir/$id.out" 2>"$dir/$id.err" </dev/null &
  while read -r word name rc <&3; do
    now
    [ "$word" != tick ] || send
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
  tell "$1" -1 "$2" "" ""
}

# finish: sends the rest, ends the ticker; removes the folder unless a stuck command holds it.
finish() {
  trap - EXIT
  trap '' PIPE
  send 2>/dev/null
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null
  for file in "$dir"/*.pid; do
    [ -f "$file" ] || continue
    read -r _ pid start _ <"$file" 2>/dev/null || continue
    born "$pid"
    if [ -n "$born" ] && [ "$born" = "$start" ]; then
      rm -f "$dir"/*.out "$dir"/*.err "$dir/pipe" "$dir/answer"
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
    elif [ -e "$name" ] && [ "$uid" != 0 ] && [ -e "$dir/asroot" ]; then
      printf '@%s\n' "$name"
      sudo -n cat "$name" </dev/null 2>/dev/null | while IFS= read -r line || [ -n "$line" ]; do printf ' %s\n' "$line"; done
    elif [ -e "$name" ]; then
      printf '!%s\n' "$name"
    else
      printf -- '-%s\n' "$name"
    fi
  done
}

# as_root COMMAND…: as root, by sudo if it asks nothing, else not at all.
as_root() {
  if [ "$uid" = 0 ]; then
    "$@"
  elif [ -e "$dir/asroot" ]; then
    sudo -n "$@"
  else
    echo 'needs root' >&2
    return 126
  fi
}

# read_root: whether sudo works without a question; asked once, of those who are not root.
read_root() {
  sudo -n true </dev/null >/dev/null 2>&1 || return 1
  : >"$dir/asroot"
}

# begins FILE PATTERN: the first line of a file that matches, within its first 64 lines; the rest is not read.
begins() {
  lines=64
  while [ "$lines" -gt 0 ] && IFS= read -r line; do
    lines=$((lines - 1))
    # shellcheck disable=SC2254 # it is a pattern
    case $line in $2) printf ' %s\n' "$line" && return ;; esac
  done <"$1"
  return 1
} 2>/dev/null

read_host() {
  show /proc/sys/kernel/random/boot_id /etc/os-release /proc/driver/nvidia/version /proc/driver/nvidia/params \
    /usr/local/cuda/version.json /usr/local/cuda/version.txt /proc/cmdline /proc/sys/kernel/tainted \
    /sys/class/dmi/id/product_name /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_serial \
    /sys/class/dmi/id/chassis_serial /sys/class/dmi/id/board_serial /sys/class/dmi/id/bios_version \
    /proc/device-tree/serial-number /var/lib/lockstep/admission.json /etc/dgx-release /opt/rocm/.info/version \
    /opt/amazon/efa_installed_packages
  if [ -d /etc/apt ]; then show /run/reboot-required; fi
  for name in /sys/firmware/efi/efivars/SecureBoot-* /opt/hpcx*/VERSION /etc/nvidia-container-runtime/config.toml /etc/dnf/plugins/versionlock.list \
    /etc/yum/pluginconf.d/versionlock.list /etc/zypp/locks /etc/nvidia-imex/nodes_config.cfg; do
    if [ -e "$name" ]; then show "$name"; fi
  done
  printf '@modules\n'
  for name in $modules; do if [ -d "/sys/module/$name" ]; then printf ' %s\n' "$name"; fi; done
  for name in $modules; do
    if [ -d "/sys/module/$name" ]; then show "/sys/module/$name/version" "/sys/module/$name/srcversion"; fi
  done
  if [ ! -d /sys/module/nvidia ]; then printf -- '-/sys/module/nvidia/version\n'; fi
  printf '@uid\n'
  begins /proc/self/status 'Uid:*'
  printf '@root\n'
  if [ -e "$dir/asroot" ]; then printf ' sudo\n'; fi
  printf '@kernels\n'
  for name in /boot/vmlinuz-*; do if [ -e "$name" ]; then printf ' %s\n' "${name#/boot/vmlinuz-}"; fi; done
  if [ -h /vmlinuz ] || [ -h /boot/vmlinuz ]; then
    printf '@link\n'
    for name in /vmlinuz /boot/vmlinuz; do
      if [ -h "$name" ]; then printf ' %s\n' "$(readlink "$name")"; fi
    done
  fi
  printf '@gsp\n'
  for name in /lib/firmware/nvidia/*/gsp*.bin; do
    name=${name%/*}
    if [ -d "$name" ]; then printf ' %s\n' "${name##*/}"; fi
  done
  printf '@compat\n'
  for name in /usr/local/cuda/compat/libcuda.so.*.*; do if [ -e "$name" ]; then printf ' %s\n' "${name##*/}"; fi; done
  read_processor
  read_environment
}

# Processor, page size, memory nodes, IOMMU and toolkits, as sections of `host`.
read_processor() {
  printf '@cpu\n'
  while IFS= read -r line && [ -n "$line" ]; do
    case $line in
      vendor_id* | 'CPU implementer'*) printf ' %s\n' "$line" ;;
      'model name'* | 'CPU part'*) printf ' %s\n' "$line" && break ;;
    esac
  done </proc/cpuinfo
  printf '@page\n'
  begins /proc/self/smaps 'KernelPageSize:*' || printf ' %s\n' "$(getconf PAGESIZE)"
  nodes=0 sockets=0
  for name in /sys/devices/system/node/node[0-9]*; do
    { { IFS= read -r line <"$name/cpulist"; } 2>/dev/null && [ -n "$line" ]; } || continue
    nodes=$((nodes + 1))
    line=${line%%[,-]*}
    { read -r line <"/sys/devices/system/cpu/cpu$line/topology/physical_package_id"; } 2>/dev/null || line=0
    [ "$line" -lt "$sockets" ] || sockets=$((line + 1))
  done
  printf '@numa\n %s %s\n' "$nodes" "$sockets"
  printf '@iommu\n'
  for name in /sys/class/iommu/*; do
    if [ -e "$name" ]; then printf ' on\n'; else printf ' off\n'; fi
    break
  done
  printf '@toolkits\n'
  for name in /usr/local/cuda-[0-9]*.[0-9]*; do if [ -d "$name" ]; then printf ' %s\n' "${name#/usr/local/cuda-}"; fi; done
}

# Variables that change what a collective does, and the loader's path, in what every login and job is given.
read_environment() {
  for file in /etc/environment /etc/nccl.conf /etc/profile.d/*.sh; do
    { [ -r "$file" ] && [ -f "$file" ]; } || continue
    printf '@env %s\n' "$file"
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *NCCL_* | *UCX_* | *FI_* | *RCCL_* | *HSA_* | *LD_LIBRARY_PATH=*) printf ' %s\n' "$line" ;; esac
    done <"$file"
  done
}

read_boot() {
  if command -v grub-editenv >/dev/null; then grub-editenv - list; fi
  if command -v grub2-editenv >/dev/null; then grub2-editenv - list; fi
}

# The chassis serial by the firmware's table, for machines whose sysfs gives none.
read_serial() {
  for name in product chassis board; do
    if { IFS= read -r line <"/sys/class/dmi/id/${name}_serial"; } 2>/dev/null && [ -n "$line" ]; then return; fi
  done
  if command -v dmidecode >/dev/null; then as_root dmidecode -s system-serial-number; fi
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

# read_modules: file, version, licence and kernel of the modules on disk, for the kernel that runs.
read_modules() {
  command -v modinfo >/dev/null || { echo 'modinfo: not found' >&2; return 127; }
  # shellcheck disable=SC2086 # a list of names
  modinfo $modules | grep -E '^(filename|version|license|srcversion|vermagic):'
}

# The module for each installed kernel that does not run now: a boot into one without it comes up without GPUs.
read_next_modules() {
  read -r current </proc/sys/kernel/osrelease
  for name in /boot/vmlinuz-*; do
    name=${name#/boot/vmlinuz-}
    if [ "$name" = "$current" ] || [ "$name" = '*' ]; then continue; fi
    printf '%s %s\n' "$name" "$(modinfo -k "$name" -F version nvidia 2>/dev/null)"
  done
}

# Whether there are kernels besides the one that runs.
other_kernels() {
  set -- /boot/vmlinuz-*
  [ $# -gt 1 ] && return
  read -r current </proc/sys/kernel/osrelease
  [ -e "$1" ] && [ "${1#/boot/vmlinuz-}" != "$current" ]
}

# inside PATTERN FILE…: "FILE:TEXT" for every place in binary files that matches.
inside() {
  grep -a -o -H -E "$@" 2>/dev/null
  # An older busybox has no -a, and takes every file for text.
  [ $? -le 1 ] || grep -o -H -E "$@"
}

# read_libraries: the libraries of interest in the loader's order, their real files, and versions inside some.
read_libraries() {
  names='lib(cuda|nvidia-ml|nvidia-nscq|nccl|rccl|nccl-[a-z-]*|rccl-[a-z-]*|cudart|cudnn[a-z_]*|fabric|ibverbs|mlx5|efa|gdrapi|ucp)'
  cached=$(ldconfig -p 2>/dev/null | grep -E "^[[:space:]]*${names}[.]so[.0-9]* [(]")
  first=$LD_LIBRARY_PATH:
  for file in /etc/environment /etc/profile.d/*.sh; do
    { [ -r "$file" ] && [ -f "$file" ]; } || continue
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in
        *LD_LIBRARY_PATH=*)
          line=${line#*LD_LIBRARY_PATH=}
          line=${line#[\"\']}
          first=$first${line%[\"\']}:
          ;;
      esac
    done <"$file"
  done
  found='' versions='' plugins='' nodes='' ucx=''
  printf '@paths\n'
  while [ -n "$first" ]; do
    folder=${first%%:*}
    first=${first#*:}
    case $folder in /*) ;; *) continue ;; esac
    ucx="$ucx
$folder"
    for file in "$folder"/lib*.so.[0-9]*; do
      case ${file##*/} in
        libnccl.so.2 | librccl.so.1 | libcuda.so.1 | libnvidia-ml.so.1 | libcudart.so.?? | libcudnn*.so.9) ;;
        *) continue ;;
      esac
      printf ' %s %s\n' "${file##*/}" "$file"
      found="$found
$file"
    done
  done
  if [ -z "$cached" ]; then
    for file in /usr/lib/*/libnccl.so.2 /usr/lib64/libnccl.so.2 /usr/local/lib/libnccl.so.2; do
      if [ -e "$file" ]; then cached="libnccl.so.2 (none) => $file" && break; fi
    done
  fi
  while read -r name line; do
    file=${line##*=> }
    { [ -n "$name" ] && [ -e "$file" ]; } || continue
    printf ' %s %s\n' "$name" "$file"
    case $name in libucp.so*) ucx="$ucx
${file%/*}" ;; esac
    found="$found
$file"
  done <<LIST
$cached
LIST
  read_inside
}

# The modules by which UCX calls GDRCopy, in $ucx and HPC-X: which of its functions they bind tells how new it must be.
read_ucx() {
  printf '@ucx\n'
  set +f
  for file in /opt/hpcx*/ucx/lib; do
    ucx="$ucx
$file"
  done
  set -f
  # shellcheck disable=SC2086 # one folder a line
  set -- ${ucx#?} --
  while [ "$1" != -- ]; do
    file=$1/ucx/libuct_cuda_gdrcopy.so.0
    shift
    [ -e "$file" ] || continue
    printf ' %s\n' "$file"
    set -- "$@" "$file"
  done
  shift
  [ $# -gt 0 ] || return 0
  printf '@strings\n'
  # Whole strings only: names of functions, and not the messages that mention them.
  { grep -a -z -x -H -E 'gdr_[a-z0-9_]+' "$@" || [ $? -le 1 ] || grep -z -x -H -E 'gdr_[a-z0-9_]+' "$@"; } 2>/dev/null |
    tr '\0' '\n'
}

# Second part of it: links followed, and what stands inside the files.
read_inside() {
  [ -n "$found" ] || return 0
  IFS='
'
  set -f
  read_ucx
  # shellcheck disable=SC2086 # one path a line
  set -- ${found#?}
  printf '@real\n'
  for real in $(realpath "$@" 2>/dev/null || for file; do readlink -f "$file"; done); do
    printf ' %s %s\n' "$1" "$real"
    case ${1##*/} in
      libnccl.so.* | librccl.so.*) versions="$versions
$real" ;;
      lib[nr]ccl-*) plugins="$plugins
$real" ;;
      libfabric.so.* | libibverbs.so.* | libmlx5.so.* | libefa.so.*) nodes="$nodes
$real" ;;
    esac
    shift
  done
  printf '@strings\n'
  # shellcheck disable=SC2086 # one path a line
  if [ -n "$versions" ]; then
    set -- ${versions#?}
    # These files are large: the first place is enough.
    inside -m 1 '[NR]CCL version ?:? ?[0-9][0-9A-Za-z.+-]*' "$@"
  fi
  # shellcheck disable=SC2086 # one path a line
  if [ -n "$plugins" ]; then
    set -- ${plugins#?}
    inside 'nccl[A-Z][A-Za-z]*_v[0-9]+|aws-ofi-[nr]ccl v?[0-9][0-9A-Za-z.-]*|gIB( version)? v?[0-9.]+|nccl-rdma-sharp-plugins[ -]v?[0-9.]+|(FABRIC|IBVERBS|MLX5|EFA)_[0-9]+[.][0-9.]+' "$@" | sort -u
  fi
  # shellcheck disable=SC2086 # one path a line
  if [ -n "$nodes" ]; then
    set -- ${nodes#?}
    # Each node stands at many places in a file.
    inside '(FABRIC|IBVERBS|MLX5|EFA)_[0-9]+[.][0-9.]+' "$@" | sort -u
  fi
  set +f
  for file in /usr/include/cudnn_version.h /usr/include/*/cudnn_version*.h /usr/local/cuda/include/cudnn_version.h; do
    [ -r "$file" ] || continue
    printf '@cudnn\n'
    grep -E '#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ' "$file"
    break
  done
}

# Whether there may be a GPU device to hold: a node of it, or a driver that could have made one in a container.
gpu_there() {
  for name in /dev/nvidia* /dev/kfd /sys/module/nvidia /sys/module/amdgpu /proc/driver/nvidia; do
    [ ! -e "$name" ] || return 0
  done
  return 1
}

# read_holders: processes that hold a GPU device ("PID NAME PROGRAM"), and our daemons of interest ("=PID NAME PROGRAM").
read_holders() {
  # shellcheck disable=SC2012 # one ls for all processes; names of devices hold no odd characters
  ! gpu_there || as_root_or_not ls -l /proc/[0-9]*/fd 2>/dev/null |
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
        printf '%s %s %s\n' "$pid" "$name" "$(as_root_or_not readlink "/proc/$pid/exe")"
      done
    }
  imex=
  for file in /proc/[0-9]*/comm; do
    IFS= read -r name <"$file" || continue
    case $name in
      nv-fabricmanage* | nvidia-imex | nvlsm | nv-hostengine | kubelet | containerd)
        pid=${file#/proc/}
        pid=${pid%/comm}
        printf '=%s %s %s\n' "$pid" "$name" "$(as_root_or_not readlink "/proc/$pid/exe")"
        [ "$name" != nvidia-imex ] || imex=$pid
        ;;
    esac
  done 2>/dev/null
  # The daemon reads its list of nodes only when it starts: seconds since its start and since the list was changed.
  if [ -n "$imex" ] && [ -e /etc/nvidia-imex/nodes_config.cfg ]; then
    born "$imex"
    now
    # shellcheck disable=SC2046 # two numbers
    set -- $(stat -c %Y /etc/nvidia-imex/nodes_config.cfg "$dir/shell" 2>/dev/null)
    if [ $# -eq 2 ] && [ -n "$born" ]; then
      printf '#imex %s %s\n' $(((now - born) / 100)) $(($2 - $1 + (now - opened) / 100))
    fi
  fi
  printf 'end\n'
}

# As root where that may be had, else as who we are.
as_root_or_not() {
  if [ "$uid" != 0 ] && [ -e "$dir/asroot" ]; then sudo -n "$@"; else "$@"; fi
}

# Percent used, in bytes and in inodes, of the file systems that a node must write to.
read_disks() {
  set --
  for name in / /var /boot /tmp /var/lib/containerd /var/lib/kubelet /var/lib/docker; do
    [ ! -d "$name" ] || set -- "$@" "$name"
  done
  df -Pk "$@"
  # Not of POSIX, but of all that we meet; where it is missing nothing is said of inodes.
  printf '@inodes\n'
  df -Pi "$@" 2>/dev/null
}

# Lines of the kernel log that tell of modules which do not fit each other; "#read" at the end when there was a log.
read_log() {
  { as_root_or_not dmesg 2>/dev/null && echo '#read'; } |
    grep -E '^#read$|NVRM:.*(API mismatch|this kernel module has|client has the version)|disagrees about version of symbol|Unknown symbol' |
    tail -n 41
}

rdma_there() {
  for device in /sys/class/infiniband/*; do [ ! -e "$device" ] || return 0; done
  return 1
}

# RDMA devices, "PATH:LINE" per line of each file; functions that belong to virtual machines are left out.
read_nics() {
  set --
  for device in /sys/class/infiniband/*; do
    if [ -e "$device/device/physfn" ] || [ ! -e "$device" ]; then continue; fi
    set -- "$@" "$device/fw_ver" "$device/board_id" "$device/hca_type" "$device/device/uevent" \
      "$device/ports/1/rate" "$device/ports/1/state" "$device/ports/1/link_layer"
    for name in "$device"/device/net/*; do
      if [ -e "$name" ]; then printf '%s:%s\n' "$device/device/net" "${name##*/}"; fi
    done
  done
  [ $# -eq 0 ] || grep -s -H '' "$@"
  return 0
}

# each_nic COMMAND…: as root, for every RDMA device; {} stands for its PCI address.
each_nic() {
  command=$*
  for device in /sys/class/infiniband/*; do
    [ ! -e "$device/device/physfn" ] || continue
    while IFS='=' read -r name line; do
      [ "$name" = PCI_SLOT_NAME ] || continue
      printf '@%s\n' "$line"
      # shellcheck disable=SC2086 # words of ours
      as_root ${command%%\{\}*} "$line" ${command##*\{\}} </dev/null
    done <"$device/device/uevent"
  done
}

read_ethtool() {
  for device in /sys/class/infiniband/*/device/net/*; do
    [ -e "$device" ] || continue
    printf '@%s\n' "${device##*/}"
    ethtool -i "${device##*/}"
  done
}

# Drivers that the CDI files of this node were made for.
cdi_there() {
  for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
    [ ! -r "$file" ] || return 0
  done
  return 1
}

read_cdi() {
  grep -s -o -H -E 'libcuda[.]so[.][0-9]+[.][0-9.]+' /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml \
    /var/run/cdi/*.json | sort -u
}

read_dcgm() {
  if command -v nv-hostengine >/dev/null; then nv-hostengine --version; else dcgmi -v; fi
}

read_libfabric() {
  if command -v fi_info >/dev/null; then fi_info --version; else /opt/amazon/efa/bin/fi_info --version; fi
}

# Whether nvidia-smi has answered for GPUs that have NVLink firmware of their own.
nvlink_there() {
  begins "$dir/smi.out" '*<product_architecture>*' >"$dir/word" || return
  read -r line <"$dir/word"
  case $line in *Blackwell* | *Rubin*) return 0 ;; *) return 1 ;; esac
}

# AMD GPUs in sysfs: firmware image and partitions.
read_amd() {
  grep -s -H '' /sys/class/drm/card[0-9]*/device/vbios_version /sys/class/drm/card[0-9]*/device/uevent \
    /sys/class/drm/card[0-9]*/device/current_compute_partition \
    /sys/class/drm/card[0-9]*/device/current_memory_partition
  return 0
}

# Bridges whose access control keeps peers apart.
read_acs() {
  as_root lspci -vvv 2>/dev/null | grep -E '^[0-9a-f].* bridge:|ACSCtl:'
}

# prepare: the private folder, the pipe in it, and the ticker that wakes the reader once a second.
prepare() {
  umask 077
  LC_ALL=C
  PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  export LC_ALL PATH
  count=0
  answer=
  ticker=
  uid=
  while read -r name _ line _ && [ -z "$uid" ]; do
    [ "$name" != Uid: ] || uid=$line
  done </proc/self/status
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
  opened=$now
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
