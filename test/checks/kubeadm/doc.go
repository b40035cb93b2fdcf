// Package kubeadm checks deploy/kubeadm and deploy/cloud-init with Underlay's own programs:
// underlay-ccm accepts the ranges of the examples, and the user data of a server installs exactly
// the shipped files and runs without an error.
//
// It has tests only. The module test/kube, which contains the code of kubeadm and the programs that
// it starts, tests the same files with them.
package kubeadm
