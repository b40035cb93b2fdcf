// Package controlplane starts and stops a real Kubernetes control plane on loopback: etcd,
// kube-apiserver and kube-controller-manager, the programs of test/kube, with TLS, ServiceAccount
// tokens, RBAC and an audit log as in a kubeadm cluster. Tests and the demo run against it, because
// they rely on properties (immutable fields, UID preconditions, permissions, conflicts) that only
// the real programs can prove.
//
// Two controllers of kube-controller-manager never run here: node-ipam and route. Underlay, which
// is under test, replaces them.
//
// It needs no root, no container engine and no fixed port, and must never leave a process behind:
// each program is stopped by its own process ID when the test ends, when the context ends and, on
// Linux, when the parent dies. Nothing outside of test/ may import it.
//
// Flags and defaults are those of the programs' own --help, v1.37.
package controlplane
