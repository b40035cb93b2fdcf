// Package controller reconciles Services of type LoadBalancer with load balancers of the Hetzner
// Cloud. It is the service-lb-controller, which replaces the service controller of Kubernetes.
//
// Changes of Services, of nodes that can be targets, of endpoints that affect targets or their
// health, and a periodic read of the cloud all feed a queue of load balancers. A worker reconciles
// each of them: it reads the existing state, package lb plans the differences, and the worker
// applies only those. Without a difference nothing is written, neither to the cloud nor to the API
// server.
//
// The controller never changes a Service of another load balancer class, nor a load balancer
// without its own labels. Problems that a user must fix are reported by an Event, once per cause,
// and in the Service's condition [ConditionAccepted]; transient errors are retried.
//
// Class, finalizer, status and node predicates follow the published behavior of the service
// controller in k8s.io/cloud-provider, with two exceptions: the class underlay.dev/hcloud is
// served in addition to Services without a class, and a finalizer is removed only from a Service
// with this controller's condition or class, because other implementations use the same finalizer.
package controller
