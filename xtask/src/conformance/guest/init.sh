#!/bin/sh
# The first process of the guest: has volumes by the kernel's own initiator and client, and says how that went.
#
# The console (ttyS0) has what kernel and programs say. The script's own line (ttyS1) has results, `PASS name`,
# `FAIL name: why` and `SKIP name: why`, and wishes, `HOST what`, which the host answers with `ok` or `no`.

export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mkdir -p /run/lock/iscsi
exec </dev/null >/dev/ttyS0 2>&1
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1

say() { echo "$*" >&3; }

# Waits for the host; what it answers is in $ANSWER.
host() {
  say "HOST $*"
  read -r verdict ANSWER <&3
  [ "$verdict" = ok ] || { WHY="host: $ANSWER"; return 1; }
}

# check NAME COMMAND...: what a command wants to be known of its failure is in $WHY.
check() {
  name=$1
  shift
  WHY="see the console"
  echo "== $name"
  if "$@"; then say "PASS $name"; else say "FAIL $name: $WHY"; fi
}

# --- how a volume comes and goes ---------------------------------------------------------------------------------
# attach VOLUME iscsi|nbd FS DIR: a file system is made if there is none.
attach() {
  pollux volume mount "$1" "$4" --via "$2" --fs "$3" || { WHY="pollux volume mount"; cat /run/pollux/attachments/*/log; return 1; }
  pollux volume mounts
}

# detach VOLUME
detach() {
  pollux volume unmount "$1" || { WHY="pollux volume unmount"; cat /run/pollux/attachments/*/log; return 1; }
}

# --- checks ------------------------------------------------------------------------------------------------------
LOAD_MIB=8

api() {
  pollux volume get "$1" || { WHY="pollux volume get $1"; return 1; }
}

# load DIR: every file is on the volume, with its sum, when this ends; again and again while there is $BUSY.
BUSY=/run/busy
load() {
  while :; do
    for file in $(seq $LOAD_MIB); do
      dd if=/dev/urandom of="$1/$file" bs=64k count=16 conv=fsync || return 1
    done
    [ -e $BUSY ] || break
  done
  (cd "$1" && sha256sum [0-9]* >sums && sync) || return 1
}

# verify DIR: what the device has, past the caches. They are not dropped: ext4 of Debian's kernel 6.1.192 dereferences a null
# pointer (ext4_mb_load_buddy_gfp) at the first allocation after that.
verify() {
  sync
  (cd "$1" && [ "$(wc -l <sums)" = $LOAD_MIB ] && dd if=sums iflag=direct bs=1M | has_sums) || { WHY="other content than was written"; return 1; }
}

has_sums() {
  while read -r sum file; do
    [ "$(dd if="$file" iflag=direct bs=1M | sha256sum | cut -d' ' -f1)" = "$sum" ] || { echo "$file: other content"; return 1; }
  done
}

# disturbed target|replica VOLUME DIR: writes before, while and after a node dies.
disturbed() {
  touch $BUSY
  load "$3" &
  sleep 1
  host kill "$1" "$2" || { rm $BUSY; return 1; }
  sleep 1
  rm $BUSY
  went=well
  wait $! && verify "$3" || { went=badly; WHY="writing failed, or left other content"; }
  # In any case: what follows wants all nodes.
  host revive "$2" && [ $went = well ]
}

# The load is there. All pools together: three have a copy, and half of that is more than anything else changes.
trim() {
  host note-free || return 1
  rm -f "$1"/[0-9]* && sync && fstrim -v "$1" || { WHY="fstrim"; return 1; }
  host freed $((LOAD_MIB * 3 / 2))
}

# grow VOLUME DIR: while it is mounted.
grow() {
  before=$(df -k "$2" | awk 'END { print $2 }')
  pollux volume resize "$1" 768MiB --wait || { WHY="pollux volume resize"; return 1; }
  pollux volume expand "$1" || { WHY="pollux volume expand"; return 1; }
  after=$(df -k "$2" | awk 'END { print $2 }')
  [ "$after" -gt $((before * 5 / 4)) ] || { WHY="$before KiB before, $after after"; return 1; }
  verify "$2"
}

# A last load, to be found again by whoever has the volume next.
leave() {
  load "$2" && detach "$1"
}

again() {
  attach "$1" "$2" "$3" "$4" && verify "$4" && detach "$1"
}

# secret iscsi|nbd DIR: who does not know it has nothing, and leaves nothing.
secret() {
  export POLLUX_CHAP_SECRET=the-secret-of-the-guest
  pollux volume create "secret-$1" --size 64MiB --attached-only --chap-user guest --wait || { WHY="create"; return 1; }
  mount_secret "$1" "$2" || { WHY="the right secret"; cat /run/pollux/attachments/*/log; return 1; }
  echo known >"$2/file" && pollux volume unmount "secret-$1" --chap-user guest || { WHY="unmount"; return 1; }
  POLLUX_CHAP_SECRET=not-the-secret-at-all
  ! mount_secret "$1" "$2" || { WHY="another secret is taken"; return 1; }
  [ -z "$(ls /run/pollux/attachments)" ] || { WHY="a refused mount left something"; return 1; }
}

mount_secret() {
  pollux volume mount "secret-$1" "$2" --via "$1" --fs ext4 --chap-user guest
}

nothing_is_left() {
  WHY="a mount, a session or a device is left"
  ! grep " $1 " /proc/mounts && [ -z "$(ls /sys/class/iscsi_session)" ] && [ ! -e /sys/block/nbd0/pid ] &&
    [ -z "$(ls /run/pollux/attachments)" ] && ! pgrep -f "serve attachment"
}

# all VOLUME iscsi|nbd FS
all() {
  dir=/mnt/$1
  mkdir -p "$dir"
  check "$2 attach" attach "$1" "$2" "$3" "$dir"
  check "$2 a replica dies under load" disturbed replica "$1" "$dir"
  check "$2 the target moves under load" disturbed target "$1" "$dir"
  check "$2 verify" verify "$dir"
  check "$2 grow" grow "$1" "$dir"
  check "$2 trim" trim "$dir"
  check "$2 detach" leave "$1" "$dir"
  check "$2 the same content again" again "$1" "$2" "$3" "$dir"
  check "$2 a volume with a secret" secret "$2" "$dir"
  check "$2 nothing is left" nothing_is_left "$dir"
}

while read -r module; do insmod "/modules/$module" || say "module $module"; done </modules/order
hostname guest
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
POLLUX_API=$(cat /site/api)
export POLLUX_API POLLUX_CA=/site/ca.crt POLLUX_TOKEN_FILE=/site/token
iscsid

check "the API answers" api over-iscsi
all over-iscsi iscsi ext4
all over-nbd nbd xfs
say END
sync
poweroff -f
