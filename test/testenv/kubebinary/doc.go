// Package kubebinary builds the real etcd, kube-apiserver, kube-controller-manager, kube-proxy and
// kubectl once, into one program, and says where it is. It imports next to nothing, so that the
// first command on a fresh machine is soon compiled and can show how far the long build is.
package kubebinary
