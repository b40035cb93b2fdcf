// Package lb decides what a Service of type LoadBalancer means as a load balancer of the Hetzner
// Cloud.
//
// [Parse] turns a Service and the configured [Defaults] into a fully resolved [Spec], once; nothing
// after it reads an annotation again. [Diff] compares a Spec with the [State] that was found in the
// cloud and names the differences as a sorted list of [Op]; a [Backend] executes them one by one,
// and a [Swap] in its steps. [Rollout] leaves for later what would take too many targets out of
// service at once. Between Parse and Diff, [Spec.Resolve] finds the certificates, and
// [Spec.Against] gives up what an existing load balancer cannot have. [Claim] decides which load
// balancer of somebody else may become the Service's, [Ingress] which addresses the Service's
// status shows.
//
// The package is pure: no Kubernetes, no cloud client, no clock, no logging, no metrics. It never
// decides about a load balancer that does not carry the labels of its [Owner].
//
// Its facts come from the description of the Hetzner Cloud API (load balancers and their actions,
// limits of the types), from the documented annotations of the Hetzner cloud controller manager,
// whose meaning is kept, and from Kubernetes' documentation of Services (externalTrafficPolicy,
// healthCheckNodePort, kube-proxy's health port).
//
// Words: what listens on a port of the load balancer is a [Listener] here. The cloud's API says
// "service", which would be two things in one package.
package lb
