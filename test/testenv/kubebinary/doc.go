// Package kubebinary builds the real programs of Kubernetes once and returns their paths: etcd,
// kube-apiserver, kube-controller-manager, kube-proxy and kubectl as one file, and kubelet, kubeadm
// and kube-scheduler, which only machines need, as another; and upstream's end-to-end specs of the
// network, with agnhost, which they run in pods. It imports very little, so that on a fresh machine
// the first command is compiled soon and can show the progress of the long build.
package kubebinary
