#!/bin/bash
# Installs those packages of debian.txt that are missing, after saying which.
set -euo pipefail
list=$(dirname "$0")/debian.txt
mapfile -t wanted < <(sed 's/#.*//' "$list" | xargs -n 1)

if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian. A lab needs what these packages hold: ${wanted[*]}" >&2
    exit 0
fi
missing=()
for name in "${wanted[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
done
((${#missing[@]})) || exit 0

echo "Installing Debian packages (requirements/debian.txt): ${missing[*]}"
if ((EUID != 0)); then
    echo "That needs root: run make as root, or once: apt-get install ${missing[*]}" >&2
    exit 4
fi
# A package that brings a server must not start it on this machine.
guard=/usr/sbin/policy-rc.d
if [[ ! -e $guard ]]; then
    trap 'rm -f "$guard"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$guard"
    chmod 755 "$guard"
fi
export DEBIAN_FRONTEND=noninteractive
# An unreachable foreign source must not stop what Debian's own can serve.
apt-get -q -o Acquire::Retries=3 update || echo "apt-get update had errors; going on with what it has" >&2
apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends install "${missing[@]}" </dev/null

# Nor may it start with the machine: who wanted such a server here had it before.
declare -A services=(
    [krb5-admin-server]=krb5-admin-server.service
    [krb5-kdc]=krb5-kdc.service
    [openssh-server]="ssh.service ssh.socket"
    [munge]=munge.service
    [postgresql]=postgresql.service
    [prometheus]=prometheus.service
    [slurm-wlm]="slurmctld.service slurmd.service"
)
for name in "${missing[@]}"; do
    for unit in ${services[$name]:-}; do
        if command -v systemctl >/dev/null; then
            systemctl disable --quiet "$unit" 2>/dev/null || echo "could not disable $unit" >&2
        fi
        if command -v update-rc.d >/dev/null && [[ -e /etc/init.d/${unit%.service} ]]; then
            update-rc.d "${unit%.service}" disable
        fi
    done
done
