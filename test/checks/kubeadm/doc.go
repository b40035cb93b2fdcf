// Package kubeadm holds deploy/kubeadm and deploy/cloud-init to what Underlay's
// own programs say: the ranges of the examples are ones that underlay-ccm takes,
// and the user data of a server installs exactly what is shipped and runs
// through.
//
// It has tests only. What kubeadm and the programs that it starts say of the same
// files is tested in the module test/kube, where their code is.
package kubeadm
