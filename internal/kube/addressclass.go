package kube

// AddressClass is the loadBalancerClass of Services whose addresses nodes hold, where no load
// balancer of a provider does.
const AddressClass = "underlay.dev/address"
