// Package controller gives Services of type LoadBalancer their load balancer: it is the program's
// service-lb-controller, in the place of upstream's service controller.
//
// Everything that can matter leads to one queue of Services: the Services themselves, the nodes
// that can be targets, endpoints where not all nodes can be, and a regular look at what the cloud
// has. One Service is reconciled at a time by one worker, which reads what exists, lets package lb
// decide what differs, and does only that. When nothing differs, nothing is written, neither to the
// cloud nor to the API server.
//
// It never touches a Service of another load balancer class, nor a load balancer without our
// labels. What a user must change is said by Events, once per cause, and by the Service's condition
// [ConditionAccepted]; what will pass is retried.
//
// Class, finalizer, status and node predicates follow the published behavior of the service
// controller in k8s.io/cloud-provider. Two things differ on purpose: our class is served beside
// Services without a class, and a finalizer is only taken from a Service that carries our condition
// or our class, because other implementations use the same finalizer.
package controller
