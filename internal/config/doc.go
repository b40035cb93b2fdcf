// Package config reads the command-line flags, the file of --cloud-config and the environment
// variables into one validated [Config].
//
// It is the only place that reads settings: nothing downstream parses, defaults or checks a
// setting again. Each setting is a row of a table (settings.go), by which the file is decoded and
// the remedies in errors are written, and with which docs/reference/configuration.md is compared.
// A flag takes precedence over the file, the file over the environment, and the environment over
// the default. Loading reads the form of the file, then each setting, and at last checks the
// settings against each other, from top to bottom and once.
//
// All mistakes are reported at once as [Errors]. The package must never print a secret, not even
// an invalid one; must never contact the cloud or the cluster; and must never accept a setting
// without effect: it is refused or causes a warning.
//
// Sources: flags have the meaning that they have in the upstream cloud controller manager and in
// kube-controller-manager's node IPAM
// (https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/);
// the HCLOUD_ and ROBOT_ variables are those of the Hetzner cloud controller manager; bounds are
// from the Hetzner Cloud API (https://docs.hetzner.cloud).
package config
