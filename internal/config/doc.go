// Package config turns what a person wrote (command-line flags, the file of
// --cloud-config, environment variables) into one validated [Config].
//
// It is the only place that reads settings: nothing downstream parses,
// defaults or checks a setting again. Every setting is one row of one table
// (settings.go), from which the file is decoded, the remedies in errors are
// written and docs/reference/configuration.md is generated. A flag outranks
// the file, the file outranks the environment, which outranks the default.
//
// All mistakes are reported at once as [Errors]. The package must never
// print a secret, not even an invalid one; never talk to the cloud or the
// cluster; and never accept a setting that nothing uses: what belongs to
// another version is refused by name, or warned about where it tells what the
// user does instead (families).
//
// Where its facts come from: flags mean what they mean in the upstream cloud
// controller manager and in kube-controller-manager's node IPAM
// (https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/);
// the HCLOUD_ and ROBOT_ variables are those of the Hetzner cloud controller
// manager; bounds come from the Hetzner Cloud API (https://docs.hetzner.cloud).
package config
