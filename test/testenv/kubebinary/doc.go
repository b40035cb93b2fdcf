// Package kubebinary builds the real programs of Kubernetes once and says where they are: etcd,
// kube-apiserver, kube-controller-manager, kube-proxy and kubectl as one file, and kubelet, kubeadm
// and kube-scheduler, which only machines need, as another; and upstream's end-to-end specs of the
// network, with agnhost, which they run in pods. It imports next to nothing, so that the first
// command on a fresh machine is soon compiled and can show how far the long build is.
package kubebinary
