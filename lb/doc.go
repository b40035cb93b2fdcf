// Package lb decides which Hetzner Cloud load balancer a Service of type LoadBalancer gets.
//
// [Parse] resolves a Service and the configured [Defaults] into a [Spec], once; no later step
// reads an annotation. [Spec.Resolve] finds the certificates, and [Spec.Against] drops the
// settings that an existing load balancer cannot have. [Diff] compares the Spec with the observed
// [State] and returns the differences as a sorted list of [Op]. A [Backend] executes them one at a
// time, and a [Swap] step by step. [Rollout] postpones changes that would take too many targets
// out of service at once. [Claim] decides which load balancer that this cluster did not create the
// Service may take over, and [Ingress] which addresses its status shows.
//
// The package is pure: no Kubernetes, no cloud client, no clock, no logging, no metrics. It never
// changes a load balancer without the labels of its [Owner].
//
// Sources: the description of the Hetzner Cloud API (load balancers, their actions, the limits of
// their types), the documented annotations of the Hetzner cloud controller manager, which keep
// their meaning, and the Kubernetes documentation of Services (externalTrafficPolicy,
// healthCheckNodePort, kube-proxy's health port).
//
// A [Listener] is called "service" in the cloud's API, which means a Kubernetes Service here.
package lb
