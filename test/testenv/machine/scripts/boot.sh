#!/bin/bash
# boot GROUP FOLDER PROGRAMS NAME makes a machine of a process that is in the machine's network, and
# becomes its init. It changes nothing of the host but the groups GROUP and the files below FOLDER.
#
# It runs twice: outside, where it joins the groups, and once more in namespaces of its own.
set -euo pipefail
group=$1 folder=$2 programs=$3 name=$4

# The folders of all cgroup v1 hierarchies, one a line.
hierarchies() { awk '$3 == "cgroup" { print $2 }' /proc/mounts; }

if [ -z "${inside:-}" ]; then
	for hierarchy in $(hierarchies); do
		mkdir -p "$hierarchy/$group"
		if [ -e "$hierarchy/$group/cpuset.cpus" ]; then
			# Nobody can be in a group that has no processors.
			cat "$hierarchy/cpuset.cpus" >"$hierarchy/$group/cpuset.cpus"
			cat "$hierarchy/cpuset.mems" >"$hierarchy/$group/cpuset.mems"
			echo 1 >"$hierarchy/$group/cgroup.clone_children"
		fi
		echo $$ >"$hierarchy/$group/cgroup.procs"
	done
	# As a machine's first process has it; containers are killed before the host's programs.
	echo 0 >/proc/self/oom_score_adj
	inside=yes exec unshare --mount --uts --ipc --pid --cgroup --fork --kill-child=KILL \
		"$0" "$@"
fi
unset inside

root=$folder/root
hostname "$name"
mount --bind "$root" "$root"
# A machine's packages may write to /usr, and some pods make folders there.
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$folder/usr,workdir=$folder/usr-work" "$root/usr"
# Values of the kernel, as packages of the host ask for them. They aren't this machine's to choose.
rm -f "$root"/usr/lib/sysctl.d/*.conf
# What the host's owner has installed by hand isn't there.
mount --bind "$folder/local" "$root/usr/local"
mount --bind "$programs" "$root/usr/local/lib/machine"
mount -o remount,bind,ro "$root/usr/local/lib/machine"

mount -t proc proc "$root/proc"
# What isn't the network's is the whole kernel's.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,rw "$root/proc/sys/net"
# kubelet sets these, and wants to find them set.
for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
	kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "$folder/sysctl/${key%/*}"
	cat "/proc/sys/$key" >"$folder/sysctl/$key"
	mount --bind "$folder/sysctl/$key" "$root/proc/sys/$key"
done

mount -t sysfs sysfs "$root/sys"
mount -o remount,bind,ro "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
for hierarchy in $(hierarchies | grep -v "^$root"); do
	controller=$(basename "$hierarchy")
	mkdir "$root/sys/fs/cgroup/$controller"
	option=$controller
	# One without a controller is known by its name.
	[ "$controller" != systemd ] || option=none,name=systemd
	mount -t cgroup -o "$option" cgroup "$root/sys/fs/cgroup/$controller"
done

mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty kmsg; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do
	ln -s "/proc/self/fd/${number%:*}" "$root/dev/${number#*:}"
done

mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"

cd "$root"
mkdir -p old
pivot_root . old
umount --lazy /old
rmdir /old
# kubelet hands mounts on to pods, as it does where systemd has made everything shared.
mount --make-rshared /
cd /
exec setsid env -i HOME=/root LANG=C.UTF-8 \
	PATH=/etc/machine/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	/etc/machine/init
