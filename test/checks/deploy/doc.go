// Package deploy holds what people install to what it says: the manifests in
// deploy/ decode strictly and give their programs no more than they need, the
// permissions are granted by a real API server, and the Dockerfile's build lines
// make static programs that start. Whether every permission is in use is for
// test/checks/permissions to say, of all tests together.
//
// It has tests only. Nothing here runs a container: there, the same lines and
// the same arguments run with other paths.
package deploy
