#!/usr/bin/env bash
# Process 1 of a host: builds what it sees from its disk ($DISK), then serves ssh. Called by hosts.py inside namespaces.
# $NAME, $SHARED (a folder, or empty), $SEEN (folders of this machine, read-only), $LAYERS and $VENVS (overlay, places).
set -euo pipefail
read -r pid _ </proc/self/stat # as this machine counts it
mount --make-rprivate /
mount -t tmpfs -o mode=755 root "$DISK/new"
cd "$DISK/new"
mkdir -p usr etc root tmp var run proc sys dev old mnt opt
for link in bin sbin lib lib64; do
    if [[ -L /$link ]]; then cp -a "/$link" .; elif [[ -d /$link ]]; then mkdir $link && mount --rbind "/$link" $link; fi
done
mount --rbind /usr usr && mount -o remount,ro,bind usr
for folder in etc root tmp var; do mount --bind "$DISK/$folder" $folder; done
for folder in $SEEN; do
    mkdir -p "./$folder" && mount --bind "$folder" "./$folder" && mount -o remount,ro,bind "./$folder"
done
if [[ $LAYERS ]]; then
    overlay=
    for place in $VENVS; do
        mkdir -p "./$place"
        if [[ $overlay ]]; then
            mount --bind "$overlay" "./$place"
        else
            mount -t overlay venv -o "lowerdir=$LAYERS,upperdir=$DISK/venv/upper,workdir=$DISK/venv/work" "./$place"
            overlay=./$place
        fi
    done
fi
if [[ $SHARED ]]; then mkdir shared && mount --bind "$SHARED" shared; fi
mount -t tmpfs run run && mkdir -p run/sshd run/lock
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 dev dev && mkdir dev/pts dev/shm
for node in null zero full random urandom tty; do touch dev/$node && mount --bind /dev/$node dev/$node; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx && ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin && ln -s fd/1 dev/stdout && ln -s fd/2 dev/stderr
mount -t tmpfs -o mode=1777 shm dev/shm
# Whoever logs in is root, and needs no sudo; where this machine has none, the configuration still says it.
mount -t tmpfs local usr/local/bin && printf '#!/bin/sh\nexec "$@"\n' >usr/local/bin/sudo && chmod 755 usr/local/bin/sudo
hostname "$NAME"
echo "$pid" >"$DISK/pid.new" && mv "$DISK/pid.new" "$DISK/pid"
pivot_root . old && cd / && umount -l /old
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /usr/sbin/sshd -D -e
