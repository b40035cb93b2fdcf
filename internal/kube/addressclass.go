package kube

// AddressClass is the loadBalancerClass of Services whose addresses are held by nodes instead of
// a provider's load balancer.
const AddressClass = "underlay.dev/address"
