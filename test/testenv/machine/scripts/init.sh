#!/bin/bash
# The machine's first process, in place of systemd. It keeps containerd and kubelet running while
# /run/units/NAME.wanted is there, which systemctl makes and removes, and buries the dead.
set -uo pipefail

mkdir -p /run/units /run/lock /var/log
# Who writes to it wakes this loop; it would look twice a second by itself.
mkfifo /run/units/wake
exec 3<>/run/units/wake
for unit in /etc/machine/enabled/*; do
	[ ! -e "$unit" ] || touch "/run/units/${unit##*/}.wanted"
done

# As systemd-sysctl does at every boot, before anything else runs. What isn't the network's isn't
# this machine's to set.
sysctl --quiet --system >/var/log/sysctl.log 2>&1

# A unit's command, with what it has to find before.
start_containerd() {
	local config=/etc/machine/containerd.toml
	if [ -e /etc/containerd/config.toml ]; then
		# What is installed counts, but that systemd isn't there.
		sed -e '1i imports = ["/etc/machine/containerd.toml"]' \
			-e 's/SystemdCgroup = true/SystemdCgroup = false/' \
			/etc/containerd/config.toml >/run/containerd.toml
		config=/run/containerd.toml
	fi
	exec containerd --config "$config"
}

start_kubelet() {
	until [ -e /var/lib/kubelet/config.yaml ] &&
		{ [ -e /etc/kubernetes/kubelet.conf ] || [ -e /etc/kubernetes/bootstrap-kubelet.conf ]; }; do
		# systemd would start it again and again.
		sleep 0.2
	done
	local KUBELET_KUBEADM_ARGS= KUBELET_EXTRA_ARGS= file
	for file in /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
		# shellcheck disable=SC1090
		[ ! -e "$file" ] || . "$file"
	done
	# As kubeadm's package has it in its drop-in for systemd, but for the last flag.
	# shellcheck disable=SC2086
	exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
		--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \
		$KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS --config-dir=/etc/machine/kubelet.conf.d
}

declare -A pid=() since=()

start() {
	("start_$1") >>"/var/log/$1.log" 2>&1 3>&- </dev/null &
	pid[$1]=$! since[$1]=$SECONDS
	echo $! >"/run/units/$1.pid"
}

runs() { [ -n "${pid[$1]:-}" ] && kill -0 "${pid[$1]}" 2>/dev/null; }

look() {
	if runs "$1"; then
		if [ ! -e "/run/units/$1.wanted" ]; then
			kill -TERM "${pid[$1]}"
			# It may be in the middle of something for some seconds.
			local try
			for try in $(seq 100); do
				runs "$1" || break
				sleep 0.1
			done
			kill -KILL "${pid[$1]}" 2>/dev/null
			wait "${pid[$1]}" 2>/dev/null
			rm -f "/run/units/$1.pid"
		fi
		return
	fi
	rm -f "/run/units/$1.pid"
	if [ -e "/run/units/$1.wanted" ] && [ "$SECONDS" != "${since[$1]:-}" ]; then
		start "$1"
	fi
}

touch /run/units/ready
while true; do
	look containerd
	look kubelet
	read -r -t 0.5 -u 3 _
done
