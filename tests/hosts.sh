#!/bin/sh
# hosts.sh: runs a command on the first of several hosts that are namespaces of this machine, without privileges.
#
#   tests/hosts.sh [--count N] [--rate RATE] [--own FOLDER] -- COMMAND...
#                                           2 or 3 hosts; RATE as tc takes it, such as 1gbit; FOLDER: a disk of each
#   tests/hosts.sh --on HOST COMMAND...     inside: COMMAND on another host
#
# The hosts are a, b and c. All share processes, and files outside FOLDER; each has its own name and network. mpirun
# finds the others by its environment: `mpirun --host a:2,b:1`. Inside, `ip link set dev to_b down` cuts host b from the
# rest, and a file system may be mounted without effect outside. Whatever runs inside is killed when COMMAND ends.
# Exit 77: this machine refuses namespaces or the rate, and the last line of stderr says so. Else that of COMMAND.
set -eu

NETWORK=10.77.0

fail() {
    echo "hosts.sh: $2" >&2
    exit "$1"
}

usage() {
    fail 1 "$1, expected [--count 2|3] [--rate RATE] [--own FOLDER] -- COMMAND"
}

# Gives the interface $1 the rate of the lines. A burst holds a few whole packets of 64 KB: the kernel would cut larger
# ones to 1,500 bytes, with time of the processor that a network card saves it.
shape() {
    [ -z "$rate" ] || $2 tc qdisc add dev "$1" root tbf rate "$rate" burst 256kb latency 100ms
}

# Host $1 with the last number $2 of its address, on a port of the bridge. A process that sleeps keeps its namespaces.
add_host() {
    unshare $spaces sleep infinity > /run/keeper 2>&1 &
    until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ] && [ "$(cat /proc/$!/comm)" = sleep ]; do
        sleep 0.01
    done
    echo $! > "/run/$1"
    echo "$NETWORK.$2 $1" >> /run/names
    inside="nsenter -t $! $spaces"
    $inside hostname "$1"
    ip link add name "to_$1" type veth peer name line netns $!
    ip link set dev "to_$1" master bridge up
    $inside ip addr add "$NETWORK.$2/24" dev line
    $inside ip link set dev line up
    $inside ip link set dev lo up
    shape "to_$1" ""
    shape line "$inside"
    [ -z "$own" ] || $inside mount -t tmpfs "$1" "$own"
}

# In the namespaces of host a, as their first process.
build() {
    mount -t tmpfs hosts /run
    hostname a
    printf '127.0.0.1 localhost\n%s.1 a\n' "$NETWORK" > /run/names
    mount --bind /run/names /etc/hosts
    echo "$spaces" > /run/spaces
    ip link set dev lo up
    ip link add name bridge type bridge
    ip addr add "$NETWORK.1/24" dev bridge
    ip link set dev bridge up
    add_host b 2
    [ "$count" = 2 ] || add_host c 3
    [ -z "$own" ] || mount -t tmpfs a "$own"
}

if [ "${1-}" = --on ]; then
    host=$2
    shift 2
    exec nsenter -t "$(cat "/run/$host")" $(cat /run/spaces) sh -c "$*"
fi

count=2 rate="" own="" spaces="-n -u"
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case "$1 ${2-}" in
    "--count 2" | "--count 3") count=$2 ;;
    "--rate "?*) rate=$2 ;;
    "--own /"*) own=$2 spaces="-n -u -m" ;;
    *) usage "'$1 ${2-}' found" ;;
    esac
    shift 2
done
[ $# -gt 1 ] || usage "no command found"

if [ "${HOSTS_INSIDE-}" != yes ]; then
    reason=$(unshare -Urnmupf --mount-proc --kill-child true 2>&1) || fail 77 "namespaces are refused: $reason"
    file=$(CDPATH="" cd "$(dirname "$0")" && pwd)/hosts.sh
    shift
    set -- --count "$count" ${rate:+--rate "$rate"} ${own:+--own "$own"} -- "$@"
    HOSTS_INSIDE=yes exec unshare -Urnmupf --mount-proc --kill-child sh "$file" "$@"
fi

shift
file=$0
reason=$(build 2>&1 > /dev/null) || fail 77 "the network of the hosts is refused: $reason"
unset HOSTS_INSIDE
mkdir /run/tmp
export TMPDIR=/run/tmp OMPI_MCA_plm_rsh_agent="sh $file --on" OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_btl=tcp,self
export OMPI_MCA_btl_tcp_if_include=$NETWORK.0/24 OMPI_MCA_oob_tcp_if_include=$NETWORK.0/24
code=0
"$@" || code=$?
exit "$code"
