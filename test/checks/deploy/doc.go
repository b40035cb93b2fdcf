// Package deploy checks the files that users install: the manifests in deploy/ decode strictly and
// give their programs no more permissions than they need, a real API server accepts them and grants
// exactly these permissions, and the Dockerfile's bases are pinned. test/checks/permissions checks,
// over all tests together, that every permission is used; test/e2e/kubeadm, which installs the
// images and the manifests, tests that they work.
//
// It has tests only.
package deploy
