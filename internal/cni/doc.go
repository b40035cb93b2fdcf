// Package cni writes the CNI configuration that gives pods their addresses and routes:
// 05-underlay.conflist, which uses the plugins ptp, host-local and portmap.
//
// In the folder of CNI configurations it is a symlink into a folder that a reboot empties,
// together with the routes and the packet filter that pods need. So after a boot the symlink is
// dangling until the agent has restored those, and no pod starts before: a runtime reports that
// it has no network, even if another configuration sorts behind.
//
// The file is replaced atomically. The package must never change a file of another program, and
// never report a node as ready if its runtime would use another file or lacks a plugin.
// Allocated addresses are host-local's own state, below the same folder; it is never removed
// while a pod may hold one of them.
//
// Sources: the CNI specification 1.0.0, the plugins' documentation
// (https://www.cni.dev/plugins/current/), libcni, by which runtimes use the first file by name
// that ends in .conf, .conflist or .json, and containerd
// (internal/cri/server/cni_conf_syncer.go, and opts.go of go-cni), which loads no configuration
// if it can't read the first.
package cni
