// Package machine runs machines of a kubeadm cluster in namespaces of this one: each has a network,
// processes, control groups, mounts and a root file system of its own, in which real containerd,
// kubelet and kubeadm run, as on a server that cloud-init has prepared.
//
//	programs, err := machine.Build(ctx, os.Stderr)  // once; minutes the first time
//	m, err := machine.New(ctx, machine.Options{Name: "node-1", Dir: dir, Network: ns, Programs: programs})
//	defer m.Remove()
//	err = m.Boot(ctx)                               // until its init is ready
//	out, err := m.Run(ctx, "kubeadm", "init", "--config", "/root/init.yaml")
//	err = m.PullPlug()                              // only its files remain
//	err = m.Boot(ctx)
//
// Scripts, which come first in its PATH, replace parts that a machine lacks in comparison with a
// server: systemd (systemctl supports containerd and kubelet), packages (apt-get enables programs
// that are present already), the internet. kubeadm is started such that it ignores its checks of
// the kernel.
//
// A machine must never change a setting of the host. Its files are below its folder; the
// kernel-wide values that kubelet sets are files of its own; it can't outlive the process that
// booted it.
//
// A machine requires cgroup v1, overlayfs, and root on the host.
package machine
