// Package deploy holds what people install to what it says: the manifests in
// deploy/ decode strictly and give their programs no more than they need, a real API
// server takes them and grants just these permissions, and the Dockerfile's bases are
// pinned. Whether every permission is in use is for test/checks/permissions to say, of
// all tests together; that the images and the manifests work is tried by
// test/e2e/kubeadm, which installs them.
//
// It has tests only.
package deploy
