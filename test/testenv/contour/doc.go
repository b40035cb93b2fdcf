// Package contour runs Contour, an implementation of the Gateway API, beside a control plane of
// tests: the gateway provisioner, which creates a Service of type LoadBalancer for each Gateway,
// and the programs that the pods of a Gateway would run. Both have the permissions of Contour's own
// manifests, and no others.
//
// Envoy, which carries the traffic, is not part of it, but its configuration can be read.
package contour
