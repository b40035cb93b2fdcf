#!/bin/bash
# Generated from node.yaml by "go test ./test/checks/kubeadm -run TestDocumentScript -update". Do not edit.
#
# Writes the files of node.yaml on a machine without user data, such as a
# dedicated server. Then run make-node.
set -euo pipefail

# file PATH MODE: standard input becomes the file.
file() {
  mkdir -p "$(dirname "$1")"
  (umask 077 && cat >"$1")
  chmod "$2" "$1"
}

file /etc/kubernetes/join.yaml 0600 <<'END-OF-FILE'
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: 10.0.0.2:6443
    token: abcdef.0123456789abcdef
    caCertHashes:
      - sha256:0000000000000000000000000000000000000000000000000000000000000000
nodeRegistration:
  kubeletExtraArgs:
    - name: cloud-provider
      value: external
    - name: node-ip
      value: NODE_IP
END-OF-FILE

file /etc/sysctl.d/90-underlay.conf 0644 <<'END-OF-FILE'
net.ipv4.ip_forward = 1
net.ipv6.conf.default.forwarding = 1
-net.ipv6.conf.en*.accept_ra = 2
-net.ipv6.conf.eth*.accept_ra = 2
END-OF-FILE

file /etc/systemd/networkd.conf.d/90-underlay.conf 0644 <<'END-OF-FILE'
# For nodes with systemd-networkd: install as
# /etc/systemd/networkd.conf.d/90-underlay.conf and run
# "systemctl restart systemd-networkd".
#
# Without it, systemd-networkd deletes routes that it didn't create whenever it
# restarts, such as in an update. The agent restores them within milliseconds; with
# this file, none are deleted.
[Network]
ManageForeignRoutes=no
ManageForeignRoutingPolicyRules=no
END-OF-FILE

file /etc/containerd/config.toml 0644 <<'END-OF-FILE'
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = true
END-OF-FILE

file /usr/local/sbin/make-node 0755 <<'END-OF-FILE'
#!/bin/bash
# Installs the packages of a node, and runs kubeadm join if there is a token.
set -euo pipefail

# EDIT, for a server that joins: the subnet of the servers in the network.
subnet=10.0.0.0/24
# EDIT, for a server that joins a dual-stack cluster: yes.
dual_stack=no
# The cluster's kubernetesVersion.
kubernetes=v1.37

# awaited FAMILY WHAT FILTER...: waits for the machine's first address that ip shows,
# which may be assigned after boot.
awaited() {
  local try address
  for try in $(seq 60); do
    address=$(ip "$1" -o address show "${@:3}" | awk '{sub("/.*", "", $4); print $4; exit}')
    [ -z "$address" ] || { echo "$address"; return; }
    sleep 2
  done
  echo "this machine has no $2, after two minutes" >&2
  return 1
}

# repository NAME URL SUITE KEY: packages from URL, trusted by the key at KEY.
repository() {
  local keyring=/etc/apt/keyrings/$1.asc
  curl -fsSL --retry 5 -o "$keyring" "$4"
  echo "deb [signed-by=$keyring] $2 $3" >"/etc/apt/sources.list.d/$1.list"
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  . /etc/os-release
  install -d -m 0755 /etc/apt/keyrings
  # Kubelet 1.38 will require a runtime that reports its cgroup driver: containerd 2,
  # which Debian 13 doesn't have.
  repository docker "https://download.docker.com/linux/$ID" "$VERSION_CODENAME stable" "https://download.docker.com/linux/$ID/gpg"
  repository kubernetes "https://pkgs.k8s.io/core:/stable:/$kubernetes/deb/" / "https://pkgs.k8s.io/core:/stable:/$kubernetes/deb/Release.key"
  apt-get -qq update
  # kubernetes-cni contains the plugins that underlay-agent's configuration names.
  # force-confold keeps the configuration of containerd above.
  apt-get -qq install --yes --no-install-recommends -o Dpkg::Options::=--force-confold \
    containerd.io kubelet kubeadm kubernetes-cni
  apt-mark hold kubelet kubeadm
}

join=/etc/kubernetes/join.yaml
sysctl --quiet --system
# It reads its drop-in at start.
systemctl try-restart systemd-networkd
install_packages
systemctl restart containerd
if grep -q 'token: abcdef.0123456789abcdef' "$join"; then
  echo "ready for kubeadm; without a token this machine doesn't join"
  rm "$join"
  exit
fi
address=$(awaited -4 "address in $subnet: attach it to the network" to "$subnet")
if [ "$dual_stack" = yes ]; then
  # A permanent address without a duplicate.
  address+=,$(awaited -6 "IPv6 address: give it one, or set dual_stack=no" scope global -tentative -dadfailed -temporary -deprecated)
fi
sed -i "s/NODE_IP/$address/" "$join"
kubeadm join --config "$join"
# It contains the token.
rm "$join"
END-OF-FILE
