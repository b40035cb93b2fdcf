//go:build linux

// Package kubeadm installs clusters as documented, for tests and the demo: on machines that
// cloud-init's user data has prepared, by kubeadm with the examples' files, with real containerd,
// kubelet and kubectl, and from images of the Dockerfile. The machines are servers of the simulated
// cloud in a lab.
//
//	folder, err := kubeadm.Pack(ctx, os.Stderr) // before netlab.Enter: it may need modules
//	c, err := kubeadm.Start(ctx, kubeadm.Options{Dir: dir, Packed: folder})
//	defer c.Stop()
//	s, err := c.Rent(ctx, "control-1")              // a server, ready for kubeadm
//	out, err := c.On(ctx, "control-1", command)     // as typed by root there
package kubeadm
