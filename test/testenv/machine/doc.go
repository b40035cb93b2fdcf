// Package machine runs machines of a kubeadm cluster in namespaces of this one: each has a network,
// processes, control groups, mounts and a root file system of its own, in which real containerd,
// kubelet and kubeadm run, as they do on a server that cloud-init has made ready.
//
//	programs, err := machine.Build(ctx, os.Stderr)  // once; minutes the first time
//	m, err := machine.New(ctx, machine.Options{Name: "node-1", Dir: dir, Network: ns, Programs: programs})
//	defer m.Remove()
//	err = m.Boot(ctx)                               // until its init answers
//	out, err := m.Run(ctx, "kubeadm", "init", "--config", "/root/init.yaml")
//	err = m.PullPlug()                              // everything on it is gone but its files
//	err = m.Boot(ctx)
//
// What a server has and a machine hasn't is stood in for by scripts, which come first in its PATH:
// systemd (systemctl knows containerd and kubelet), packages (apt-get makes those known whose
// programs are there), the internet. kubeadm is told to overlook what it says of the kernel.
//
// A machine must never change a setting of the host. Its files are below its folder; the
// kernel-wide values that kubelet sets are files of its own; it can't outlive the process that
// booted it.
//
// What a machine needs of the host is cgroup v1 and overlayfs, and root.
package machine
