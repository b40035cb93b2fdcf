// Package cni keeps the file that makes a node's container runtime give pods
// their addresses and their way out: 05-underlay.conflist, which uses the
// plugins ptp, host-local and portmap.
//
// In the folder of CNI configurations it is a link into a folder that a reboot
// empties, like the routes and the packet filter that pods need. So after a boot
// the link leads nowhere until the agent has made those, and no pod starts before:
// a runtime reports that it has no network, also where another configuration sorts
// behind.
//
// The file is replaced as a whole, so that nobody ever reads half of it. The
// package must never touch a file of anybody else's, and never call a node ready
// whose runtime would use another file or lacks a plugin. What addresses are
// taken is host-local's own state, below the same folder; it is never removed while
// a pod may hold one of them.
//
// Where its facts come from: the CNI specification 1.0.0, the plugins' own
// documentation (https://www.cni.dev/plugins/current/), libcni, by which runtimes
// take the first file in the order of names that ends in .conf, .conflist or
// .json, and containerd (internal/cri/server/cni_conf_syncer.go, and opts.go of
// go-cni), which loads no configuration if it can't read the first.
package cni
