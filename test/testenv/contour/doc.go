// Package contour runs Contour, an implementation of the Gateway API, beside a control plane of
// tests: the gateway provisioner, which makes a Service of type LoadBalancer for each Gateway, and
// what the provisioner would have pods run for one. Both have the permissions that Contour's own
// manifests give them, and no others.
//
// Envoy, which carries the traffic, is not part of it: what Envoy is told can be read.
package contour
